package wire

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// BenchmarkEchoPython measures calls a second of 100 bytes; ns/op is the time per call over all callers.
func BenchmarkEchoPython(b *testing.B) {
	for _, shape := range []struct{ workers, callers, inflight int }{{1, 1, 1}, {2, 8, 1}, {2, 8, 4}} {
		b.Run(fmt.Sprintf("workers=%d/callers=%d/inflight=%d", shape.workers, shape.callers, shape.inflight),
			func(b *testing.B) {
				conns := make([]*Conn, shape.workers)
				for i := range conns {
					conns[i], _ = sdks[0].start(b, Options{MaxInflight: shape.inflight})
				}
				payload := []byte(strings.Repeat("x", 100))
				var callers sync.WaitGroup
				b.ResetTimer()
				b.ReportAllocs()
				for i := range shape.callers {
					callers.Go(func() {
						for n := i; n < b.N; n += shape.callers {
							resp, err := conns[i%len(conns)].Call(context.Background(), Request{Method: "echo", Payload: payload})
							if err != nil || len(resp.Payload) != len(payload) {
								b.Errorf("echo: %v", err)
								return
							}
						}
					})
				}
				callers.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
	}
}
