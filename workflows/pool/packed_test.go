package pool

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// TestAThousandWorkersWithEverythingAtItsBoundFit gives a pool of the largest size the longest texts and lists that it
// takes.
func TestAThousandWorkersWithEverythingAtItsBoundFit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	text := func(n int) string {
		const letters = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/."
		var b strings.Builder
		for range n {
			b.WriteByte(letters[random.IntN(len(letters))])
		}
		return b.String()
	}
	inWorkflow(t, poolOf(maxSize), func(p *pool) {
		p.SpecVersion, p.Size = math.MaxInt32, maxSize
		p.Spec.Pool.Env = map[string]string{"LARGE": text(spec.MaxBytes - 4<<10)}
		require.NoError(t, p.Spec.Validate())
		p.Rollout = &rollout{Rollout: api.Rollout{Reason: text(800)}}
		p.Removed = map[int]usedNumbers{}
		hosts := []string{text(200), text(200), text(200)}
		endpoints := []string{text(maxEndpoint), text(maxEndpoint), text(maxEndpoint)}
		commands := []string{text(800), text(800), text(800)} // one restarts many workers
		for number := range maxSize {
			p.ensure(number).Order = &pendingOrder{Kind: api.SignalRestart, Cause: api.CausePressure, Reason: commands[number%3]}
			p.workerChanged(api.RosterEntry{
				Slot: number, State: lifecycle.Suspended, Incarnation: math.MaxInt32, Host: hosts[number%3], PID: math.MaxInt32,
				Endpoint: endpoints[number%3],
				Since:    time.Now(), Reason: text(2 << 10), SpecVersion: math.MaxInt32, LeaseSeq: time.Now().UnixMilli(),
				ReportSeq: time.Now().UnixMilli(), Resting: true,
				ReasonCode: api.ReasonNoCapacity, RunID: fmt.Sprintf("01a2024b-c58a-7646-869f-%012d", random.Int64N(1e12)),
				Starts: math.MaxInt32, StartsFailed: math.MaxInt32, Begun: p.newRestart(),
			})
			p.slot(number).Removing, p.slot(number).RestartID = true, p.newRestart()
			p.Disruptions = append(p.Disruptions,
				disruption{Slot: number, From: math.MaxInt32, Cause: api.CausePrediction, Reason: text(maxReason), Granted: true,
					Since: time.Now()})
			p.Rollout.Waiting = append(p.Rollout.Waiting, number)
			p.StartRequests = append(p.StartRequests, api.StartRequested{Slot: number, Incarnation: math.MaxInt32})
			p.Removed[maxSize+number] = usedNumbers{math.MaxInt32, time.Now().UnixMilli()}
			share := api.Share{Process: api.Process{Worker: p.worker(number), Incarnation: math.MaxInt32},
				MemoryBytes: math.MaxInt32, CPUCores: random.Float64(), Applied: true,
				Limits: map[string]string{"memory": "cgroup", "cpu": "cgroup", "processes": "cgroup", "open_files": "rlimit"}}
			p.Shares, p.ReportedShares = append(p.Shares, share), append(p.ReportedShares, share)
		}
		p.Spec.Scale.Max = maxSize
		for range api.MaxDemands {
			p.scaling.reported(api.Demand{Host: text(200), Epoch: math.MaxInt32, Load: random.Float64() * maxLoad,
				Calls: math.MaxInt32, Waiting: math.MaxInt32, ExpiryMS: math.MaxInt32})
		}
		for range maxScaleDecisions {
			p.scaling.record(api.ScaleDecision{At: time.Now(), From: maxSize, To: 1, Load: random.Float64(), Reason: text(200),
				Worker: text(70)})
		}
		require.Len(t, p.Demand, api.MaxDemands)
		began := time.Now()
		next := pack(p.carry(), packAbove)
		t.Logf("packed in %s", time.Since(began))
		encoded, err := json.Marshal(next)
		require.NoError(t, err)
		t.Logf("the carried state has %d bytes", len(encoded))
		require.Less(t, len(encoded), 576<<10)
		again := unpack(next)
		require.Equal(t, p.Roster[999].RosterEntry.Reason, again.Roster[999].RosterEntry.Reason)
		require.Equal(t, len(p.Disruptions), len(again.Disruptions))
		status, err := p.status()
		require.NoError(t, err)
		encoded, err = json.Marshal(status)
		require.NoError(t, err)
		t.Logf("the answer to status has %d bytes", len(encoded))
		require.Less(t, len(encoded), 2<<20)
	})
}

func TestAPoolContinuesFromACompressedState(t *testing.T) {
	p := newFakePool(t)
	run := poolOf(3)
	run.Size, run.SpecVersion = 2, 7
	packed := pack(run, 0)
	require.NotEmpty(t, packed.Packed)
	p.At(10*time.Second, func() {
		require.Len(t, p.status().Workers, 2)
		require.EqualValues(t, 7, p.status().SpecVersion)
	})
	p.runUntil(20*time.Second, packed)
}

// TestAStateThatCannotBeReadFailsTheTask: a build that can read it continues the pool, which an error would end.
func TestAStateThatCannotBeReadFailsTheTask(t *testing.T) {
	run := poolOf(1)
	run.Packed = []byte("not compressed")
	require.PanicsWithError(t, "decompress the state of pool t: flate: corrupt input before offset 1",
		func() { unpack(run) })
}
