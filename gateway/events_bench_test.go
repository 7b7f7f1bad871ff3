package gateway

import (
	"bytes"
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway/pool"
)

// BenchmarkStalledEventReader measures what readers of events that have stalled cost calls. Rounds of calls without and
// with four such readers alternate, so that all see the same load of the machine; every call is accompanied by an
// event, which is far more than calls cause. The target is a ratio of the medians of at most 1.05. p99-x is as noisy as
// the machine.
func BenchmarkStalledEventReader(b *testing.B) {
	const readers, calls = 4, 1000
	log := events.New("here")
	e := open(b, 1, withEvents(log))
	body := bytes.Repeat([]byte("x"), 100)
	one := func() time.Duration {
		began := time.Now()
		emit(log, api.EventProcessStarted, api.WorkerSource("p/0"))
		_, err := e.gateway.CallPool(context.Background(), "p", pool.Request{Method: "echo", Body: body})
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	for range events.Size { // a reader's first batches fill its socket
		emit(log, api.EventProcessStarted, api.WorkerSource("p/0"))
	}
	round := func() (p50, p99 time.Duration) {
		took := make([]time.Duration, calls)
		for i := range took {
			took[i] = one()
		}
		slices.Sort(took)
		return took[calls/2], took[calls*99/100]
	}
	round()
	var p50s, p99s []float64
	var plain []time.Duration
	for b.Loop() {
		p50, p99 := round()
		var stalled [readers]net.Conn
		for i := range stalled {
			stalled[i], _ = e.stalledReader(b)
		}
		with50, with99 := round()
		for _, conn := range stalled {
			require.NoError(b, conn.Close())
		}
		plain = append(plain, p50)
		p50s, p99s = append(p50s, float64(with50)/float64(p50)), append(p99s, float64(with99)/float64(p99))
	}
	slices.Sort(plain)
	slices.Sort(p50s)
	slices.Sort(p99s)
	b.ReportMetric(float64(time.Second)/float64(plain[len(plain)/2]), "calls/s")
	b.ReportMetric(p50s[len(p50s)/2], "p50-x")
	b.ReportMetric(p99s[len(p99s)/2], "p99-x")
}
