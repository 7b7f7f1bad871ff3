package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// encodedFleet answers as Temporal does, with JSON that the client decodes: a pool of 1,000 workers on two hosts.
type encodedFleet struct {
	Fleet
	status  api.PoolStatus
	hosts   []byte
	decoded *[]tempool.Host // of the last heartbeats
}

func newEncodedFleet(b *testing.B) encodedFleet {
	const size = 1000
	status := api.PoolStatus{Pool: "large", Size: size, SpecVersion: 1}
	hosts := []tempool.Host{{ID: "web-0", HeardAt: time.Now()}, {ID: "web-1", HeardAt: time.Now()}}
	for i := range hosts {
		hosts[i].Heartbeat.Agent = &api.AgentReport{Capacity: 600, Version: "v1", Labels: []string{"default"}}
	}
	for slot := range size {
		entry := api.RosterEntry{
			Slot: slot, State: lifecycle.Ready, Incarnation: 1, Host: fmt.Sprint("web-", slot%2), PID: slot + 100,
			Endpoint: "http://10.0.0.1:7460",
			Since:    time.Now().Add(-time.Hour), SpecVersion: 1, LeaseSeq: int64(slot),
			RunID: "0197f1a2-5c1e-7d53-9c8b-1f2e3d4c5b6a", Starts: 1,
		}
		if slot%97 == 5 {
			entry.State, entry.Reason = lifecycle.Pending, "waits before the next start: exited with code 3, 4 times in a row"
		}
		status.Workers = append(status.Workers, entry)
		host := &hosts[slot%2].Heartbeat
		host.Processes = append(host.Processes, api.ProcessReport{
			Process:  api.Process{Worker: api.WorkerName("large", slot), Incarnation: 1},
			InFlight: slot % 3, UptimeMS: 1000, Usage: api.Usage{Requests: int64(slot), TotalMS: 10},
			Sample:     &api.Sample{MemoryBytes: int64(slot) << 16, CPUPercent: float64(slot % 100), At: time.Now()},
			Assessment: &api.Assessment{Grade: "good", Score: float64(100 - slot%40), MaxMemoryBytes: 512 << 20},
			Lease: &api.Lease{ID: fmt.Sprint("large.", slot, ".1.7"), Worker: api.WorkerName("large", slot),
				Holder: "gateway:web-0", ExpiresAt: time.Now()},
		})
	}
	encoded, err := json.Marshal(hosts)
	require.NoError(b, err)
	return encodedFleet{status: status, hosts: encoded, decoded: new([]tempool.Host)}
}

// Hosts decodes each heartbeat once, as the client does: agents heartbeat every four seconds.
func (f encodedFleet) Hosts(context.Context) (hosts []tempool.Host, err error) {
	if hosts, *f.decoded = *f.decoded, nil; hosts != nil {
		return hosts, nil
	}
	err = json.Unmarshal(f.hosts, &hosts)
	*f.decoded = hosts
	return hosts, err
}

// RecentSamples encodes, too: the agent has some of them itself.
func (f encodedPool) RecentSamples(_ context.Context, o tempool.SampleOptions) ([]api.RecentSamples, error) {
	var own []api.RecentSamples
	for _, slot := range o.Workers {
		one := api.RecentSamples{Worker: api.WorkerName("large", slot)}
		for i := range int64(api.MaxRecentSamples) {
			one.AgeMS, one.Incarnation = append(one.AgeMS, (api.MaxRecentSamples-i)*10_007), append(one.Incarnation, 12)
			one.MemoryBytes = append(one.MemoryBytes, (123+i*7%31)<<20+int64(slot))
			one.CPUPercent, one.CallsPerMinute, one.Score = append(one.CPUPercent, float32(i)+0.3), append(one.CallsPerMinute,
				float32(100+i*7%31)), append(one.Score, 90.5)
		}
		own = append(own, one)
	}
	return decoded(own)
}

// decoded is a value as it arrives by JSON.
func decoded[T any](value T) (arrived T, err error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return arrived, err
	}
	return arrived, json.Unmarshal(encoded, &arrived)
}

// RecentQueue has the figures of an hour of two gateways.
func (f encodedPool) RecentQueue(context.Context, tempool.GatewayOptions) ([]api.RecentQueue, error) {
	var all []api.RecentQueue
	for range 2 {
		one := api.RecentQueue{Methods: []api.MethodFigures{{Method: "a", Calls: 4, Errors: 2, TimeUS: 9_000}}}
		for i := range int32(api.FigureMinutes) {
			one.Minutes = append(one.Minutes, api.Figures{AgeMS: (api.FigureMinutes - 1 - i) * 60_000, Seconds: 60, Calls: 600,
				Waiting: api.Times{{0, 600}}, Errors: api.Counts{{Name: "worker_error", Count: 3}}})
			for bucket := range 20 {
				one.Minutes[i].Serving = append(one.Minutes[i].Serving, [2]uint32{api.TimeBucketFrom(30 + bucket), uint32(i%7) + 9})
			}
		}
		all = append(all, one)
	}
	return decoded(all)
}

func (f encodedFleet) ListPools(context.Context) ([]string, error) { return []string{"large"}, nil }

func (f encodedFleet) Pool(string) Pool { return encodedPool{nil, f} }

type encodedPool struct {
	Pool
	encodedFleet
}

// Status encodes, too: the agent may be the one that runs the pool's workflow.
func (f encodedPool) Status(context.Context) (api.PoolStatus, error) {
	return decoded(f.status)
}

func (f encodedPool) State(_ context.Context, slot int) (api.WorkerState, error) {
	return decoded(f.status.Workers[slot].Worker("large").WorkerState)
}

// BenchmarkAViewer measures the processor time of a refresh of a page. %core is that of one viewer whose page is
// refreshed every two seconds, as often as ui.js does it; the target is 2 %. The connection to Temporal is not in it.
func BenchmarkAViewer(b *testing.B) {
	fleet := newEncodedFleet(b)
	for _, path := range []string{"/ui/pools/large", "/ui/"} {
		b.Run(path, func(b *testing.B) {
			board := New(Config{Fleet: fleet, HostID: "web-0", Namespace: "default", Logger: slog.New(slog.DiscardHandler),
				Endpoint: func() string { return "" }})
			turn := 0
			refresh := func() {
				// it is two seconds later
				if turn++; turn%3 == 0 { // six
					clear(board.memos.sparks.all)
				}
				clear(board.memos.workers.all)
				board.memos.hosts.asked, board.memos.names.asked, board.memos.pools.of("large").asked =
					time.Time{}, time.Time{}, time.Time{}
				answer := httptest.NewRecorder()
				board.Serve(answer, httptest.NewRequest(http.MethodGet, path, nil), operator)
				require.Equal(b, http.StatusOK, answer.Code)
			}
			refresh()
			began := processorTime(b)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				refresh()
			}
			each := (processorTime(b) - began) / time.Duration(b.N)
			b.ReportMetric(float64(each.Microseconds())/1000, "cpu-ms/refresh")
			b.ReportMetric(100*each.Seconds()/refreshEvery.Seconds(), "%core")
		})
	}
}

// refreshEvery is afterEvent of ui.js.
const refreshEvery = 2 * time.Second

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
