package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/spec"
)

// processorTime is what this process has used; that of its workers is not counted.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// wrkCalls has wrk call the gateway for a second with 64 connections. It is a process of its own, so that processor
// time, allocations and a profile are the gateway's.
func wrkCalls(b *testing.B, url, body string) (calls int, perSecond float64) {
	script := filepath.Join(b.TempDir(), "post.lua")
	require.NoError(b, os.WriteFile(script, fmt.Appendf(nil,
		"wrk.method, wrk.body, wrk.headers[\"Content-Type\"] = \"POST\", %q, \"application/json\"", body), 0o600))
	out, err := exec.Command("wrk", "-t", "1", "-c", "64", "-d", "1s", "-s", script, url).CombinedOutput()
	require.NoError(b, err, "%s", out)
	require.NotRegexp(b, "Socket errors|Non-2xx", string(out))
	counted := regexp.MustCompile(`(?s)(\d+) requests in .*Requests/sec: +([\d.]+)`).FindStringSubmatch(string(out))
	require.NotNil(b, counted, "%s", out)
	require.NoError(b, errorOf(fmt.Sscan(counted[1]+" "+counted[2], &calls, &perSecond)))
	return calls, perSecond
}

// toolServer is an MCP server whose tool answers 1 KiB, with as little as that takes.
const toolServer = `
import sys
result = b'{"content":[{"type":"text","text":"%s"}]}' % (b"x" * 1024)
first = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"1"}}'
for line in sys.stdin.buffer:
    at = line.find(b'"id":')
    if at >= 0:
        id = line[at + 5:].split(b",")[0].rstrip(b"}\n")
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (id, first if b'"initialize"' in line else result))
        sys.stdout.buffer.flush()
`

// BenchmarkToolCalls compares calls of a tool by /mcp, mode shared, with the same calls by /v1, in turns, with 64
// connections. The target is a ratio of the medians of at least 0.75.
func BenchmarkToolCalls(b *testing.B) {
	need.Program(b, "wrk")
	e := open(b, 2, withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" }), withSpec(func(sp *spec.Spec) {
		sp.Pool.Command, sp.Pool.Protocol = []string{"python3", "-c", toolServer}, spec.ProtocolJSONRPC
		sp.Pool.MaxInflight, sp.MCP.Mode = 16, spec.MCPShared
	}))
	text := strings.Repeat("x", 1024)
	params, result := `{"name":"t","arguments":{"text":"`+text+`"}}`, `{"content":[{"type":"text","text":"`+text+`"}]}`
	sides := []struct{ name, path, body, answer string }{
		{"v1", "/v1/pools/p/call/tools/call", params, result},
		{"mcp", "/mcp/p", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`,
			`{"jsonrpc":"2.0","id":1,"result":` + result + `}`},
	}
	for _, side := range sides {
		require.JSONEq(b, side.answer, string(e.do("POST", side.path, side.body, "Content-Type", "application/json").body))
	}
	var rates [2][]float64
	var requests [2]int
	var allocations [2]uint64
	var processor [2]time.Duration
	for b.Loop() {
		for i, side := range sides {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			cpu := processorTime(b)
			calls, rate := wrkCalls(b, e.gateway.Endpoint()+side.path, side.body)
			requests[i] += calls
			processor[i] += processorTime(b) - cpu
			rates[i] = append(rates[i], rate)
			runtime.ReadMemStats(&after)
			allocations[i] += after.Mallocs - before.Mallocs
		}
	}
	var medians [2]float64
	for i, side := range sides {
		slices.Sort(rates[i])
		medians[i] = rates[i][len(rates[i])/2]
		b.ReportMetric(medians[i], side.name+"-calls/s")
		b.ReportMetric(float64(allocations[i])/float64(requests[i]), side.name+"-allocs/call")
		b.ReportMetric(processor[i].Seconds()*1e6/float64(requests[i]), side.name+"-cpu-µs/call")
	}
	b.ReportMetric(medians[1]/medians[0], "mcp/v1")
}

// BenchmarkStalledEventReader measures what readers of events that have stalled cost calls. Rounds of calls without and
// with four such readers alternate, so that all see the same load of the machine; every call is accompanied by an
// event, which is far more than calls cause. The target is a ratio of the medians of at most 1.05. p99-x is as noisy as
// the machine.
func BenchmarkStalledEventReader(b *testing.B) {
	const readers, calls = 4, 1000
	e := open(b, 1)
	body := bytes.Repeat([]byte("x"), 100)
	one := func() time.Duration {
		began := time.Now()
		e.emit(api.EventProcessStarted, api.WorkerSource("p/0"))
		_, err := e.gateway.CallPool(context.Background(), "p", pool.Request{Method: "echo", Body: body})
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	for range events.Size { // a reader's first batches fill its socket
		e.emit(api.EventProcessStarted, api.WorkerSource("p/0"))
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
			stalled[i], _ = e.stalledReader()
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
