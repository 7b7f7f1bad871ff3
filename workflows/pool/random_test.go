package pool

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
)

// randomFates is what happens to a pool and its workers.
type randomFates struct {
	*fakePool
	random *rand.Rand
	specs  int
}

// worker is a worker whose workflow runs; nil if chance finds none.
func (f *randomFates) worker() *fakeWorker {
	a := f.workers[f.random.IntN(8)]
	if a == nil || !a.open || a.entry.RunID == "" || a.ending {
		return nil
	}
	return a
}

// newSpec is a spec unlike all before.
func (f *randomFates) newSpec() api.ApplyRequest {
	f.specs++
	s := poolOf(1 + f.random.IntN(6)).Spec
	s.Pool.Env = map[string]string{"N": fmt.Sprint(f.specs)}
	s.Rotation.MaxUnavailable = 1 + f.random.IntN(2)
	return api.ApplyRequest{Spec: s}
}

func (f *randomFates) disturb() {
	r := f.random
	number := r.IntN(7)
	actions := []func(){
		func() { f.Update(api.UpdateApply, f.newSpec()) },
		func() { f.Update(api.UpdateApply, f.newSpec()) },
		func() {
			request := f.newSpec()
			request.Spec.Pool.Command = []string{neverStarts}
			f.Update(api.UpdateApply, request)
		},
		func() {
			request := f.newSpec()
			request.Spec.Scale.Min, request.Spec.Scale.Max = r.IntN(2), 2+r.IntN(5)
			f.Update(api.UpdateApply, request)
		},
		func() { f.Update(api.UpdateScale, api.ScaleRequest{Size: 1 + r.IntN(6)}) },
		func() { f.Update(api.UpdateScale, api.ScaleRequest{Size: 1 + r.IntN(6)}) },
		func() {
			f.Update(api.UpdateScale, api.ScaleRequest{Bounds: &api.ScaleBounds{Min: r.IntN(2), Max: 1 + r.IntN(6)}})
		},
		func() { f.Update(api.UpdateScale, api.ScaleRequest{Bounds: &api.ScaleBounds{}}) },
		func() {
			f.env.SignalWorkflow(api.SignalDemand,
				api.Demand{Host: fmt.Sprintf("h%d", r.IntN(2)), Epoch: 1, Load: float64(r.IntN(8)), ExpiryMS: 60_000})
		},
		func() { f.Update(api.UpdateRestart, api.RestartRequest{Reason: "at random"}) },
		func() { f.Update(api.UpdateRestart, api.RestartRequest{Worker: &number, Reason: "at random"}) },
		func() { f.Update(api.UpdateDrain, api.Control{Worker: &number, Reason: "at random"}) },
		func() { f.env.SignalWorkflow(api.SignalForceContinue, api.Control{}) },
		func() { f.env.SignalWorkflow(api.SignalForceContinue, api.Control{}) },
		func() { f.refuse = r.IntN(4) },
		func() { // a crash
			if a := f.worker(); a != nil {
				a.generation++
				a.report(lifecycle.Failed)
				a.then(stepDuration, a.start)
			}
		},
		func() { // terminated, of which the sweeper learns
			if a := f.worker(); a != nil {
				closed := api.WorkerClosed{Slot: a.run.Slot, RunID: a.entry.RunID, Status: "terminated"}
				a.exit("terminated")
				f.In(time.Duration(r.IntN(5000))*time.Millisecond, func() { f.env.SignalWorkflow(api.SignalWorkerClosed, closed) })
			}
		},
		func() { // cancelled by hand
			if a := f.worker(); a != nil && a.open {
				a.end()
			}
		},
		func() { // it rests
			if a := f.worker(); a != nil {
				a.generation++
				a.restarting = false
				a.rest(lifecycle.Failed, "gave up")
			}
		},
		func() {
			if a := f.worker(); a != nil {
				f.env.SignalWorkflow(api.SignalRotationRequest,
					api.RotationRequest{Slot: a.run.Slot, Incarnation: a.entry.Incarnation, Cause: api.CauseUptime, Reason: "old"})
			}
		},
		func() {
			if a := f.worker(); a != nil {
				f.env.SignalWorkflow(api.SignalRotationDone,
					api.RotationDone{Slot: a.run.Slot, Incarnation: a.entry.Incarnation, Failed: r.IntN(2) == 0, Reason: "over"})
			}
		},
		func() { // the same report again
			if a := f.worker(); a != nil {
				a.report(a.entry.State)
			}
		},
		func() {
			pressure := api.MemoryPressure{Host: "h",
				Level: string([]policy.Level{policy.PressureCritical, policy.PressureHigh, policy.PressureMedium,
					policy.PressureNone}[r.IntN(4)])}
			for _, slot := range slices.Sorted(maps.Keys(f.workers)) {
				a := f.workers[slot]
				a.entry.Host = "h"
				pressure.Workers = append(pressure.Workers,
					api.WorkerMemory{Slot: slot, Incarnation: a.entry.Incarnation, MemoryBytes: int64(slot) << 20})
			}
			f.env.SignalWorkflow(api.SignalMemoryPressure, pressure)
		},
		func() { f.slowSignals = time.Duration(r.IntN(3)) * time.Second },
	}
	actions[r.IntN(len(actions))]()
}

// Whatever operators, hosts and Temporal do to a pool and its workers: once they leave it alone, all its workers serve
// on the spec that was applied last, there is no other worker, and a number is used once.
func TestAPoolIsWholeAfterAnyDisturbances(t *testing.T) {
	for _, seed := range []uint64{0, 1, 2, 3, 4, 5, 88, 103, 121, 235, 294, 432} { // the last six found something
		t.Run(fmt.Sprint(seed), func(t *testing.T) { disturbAPool(t, seed) })
	}
}

// A pool that is to stop among such disturbances stops, and leaves no worker.
func TestAPoolStopsAmongAnyDisturbances(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { stopAPool(t, seed) })
	}
}

func stopAPool(t *testing.T, seed uint64) {
	p := newFakePool(t)
	f := &randomFates{fakePool: p, random: rand.New(rand.NewPCG(seed, 3))}
	p.leases = map[int]bool{0: false, 2: false}
	at := time.Second
	for range 60 {
		if f.random.IntN(3) > 0 { // else together with the one before
			at += time.Duration(f.random.IntN(5000)) * time.Millisecond
		}
		p.Perhaps(at, f.disturb)
	}
	p.Perhaps(time.Duration(f.random.Int64N(int64(at))), func() { p.Update(api.UpdateStop, api.Control{}) })
	p.Perhaps(at, func() { p.refuse, p.slowSignals = 0, 0 })
	p.Perhaps(at+time.Hour, func() { require.Fail(t, "the pool is open", "%+v", p.status()) })
	p.run(poolOf(3))
	require.Zero(t, p.open())
}

func disturbAPool(t *testing.T, seed uint64) {
	p := newFakePool(t)
	f := &randomFates{fakePool: p, random: rand.New(rand.NewPCG(seed, 2))}
	p.leases = map[int]bool{0: false, 2: false}
	const disturbances = 120
	at := time.Second
	for range disturbances {
		if f.random.IntN(3) > 0 { // else together with the one before
			at += time.Duration(f.random.IntN(5000)) * time.Millisecond
		}
		p.At(at, f.disturb)
	}
	at += time.Minute
	p.At(at, func() { p.refuse, p.slowSignals = 0, 0 })
	at += 15 * time.Minute // the pressure is over, grants are void
	const size = 4
	p.At(at, func() {
		last := f.newSpec()
		last.Spec.Pool.Size = size
		p.Update(api.UpdateApply, last)
	})
	p.At(at+2*time.Hour, func() {
		status := p.status()
		require.Nil(t, status.Rollout)
		require.Equal(t, size, status.Size)
		require.Equal(t, size, status.Ready, "%+v", status.Workers)
		require.Len(t, status.Workers, size)
		require.Equal(t, size, p.open())
		for _, w := range status.Workers {
			require.Equal(t, lifecycle.Ready, w.State)
			require.Equal(t, status.SpecVersion, w.SpecVersion)
			require.True(t, p.workers[w.Slot].open)
			require.Equal(t, p.workers[w.Slot].entry.Incarnation, w.Incarnation)
		}
	})
	p.runUntil(at+2*time.Hour+time.Minute, poolOf(3))
	require.Zero(t, p.open())
	newest := map[int]api.RosterEntry{}
	for _, run := range p.started {
		before := newest[run.Slot]
		require.GreaterOrEqual(t, run.Machine.Incarnation, before.Incarnation)
		require.GreaterOrEqual(t, run.LeaseSeq, before.LeaseSeq)
		newest[run.Slot] = api.RosterEntry{Incarnation: run.Machine.Incarnation, LeaseSeq: run.LeaseSeq}
	}
}
