package ui

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/ui/uitest"
)

// encodedFleet answers as Temporal does, with JSON that the client decodes: the pool of uitest.
type encodedFleet struct {
	Fleet
	status  api.PoolStatus
	hosts   []byte
	decoded *[]tempool.Host // of the last heartbeats
}

func newEncodedFleet(b *testing.B) encodedFleet {
	encoded, err := json.Marshal(uitest.Hosts(1))
	require.NoError(b, err)
	return encodedFleet{status: uitest.Status(), hosts: encoded, decoded: new([]tempool.Host)}
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
	return decoded(uitest.Samples(o.Workers, 1))
}

// decoded is a value as it arrives by JSON.
func decoded[T any](value T) (arrived T, err error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return arrived, err
	}
	return arrived, json.Unmarshal(encoded, &arrived)
}

func (f encodedPool) RecentQueue(context.Context, tempool.GatewayOptions) ([]api.RecentQueue, error) {
	return decoded(uitest.Queues())
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
				Outage:   func() time.Duration { return 0 },
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
