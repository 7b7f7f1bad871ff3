package gateway

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/spec"
)

// recording writes down when each call begins and ends, and under which lease.
const recording = `
import os, random, time, tempool

@tempool.method(raw=True)
def tag(body):
    with open(os.environ["RECORD"] + "." + str(os.getpid()), "ab", buffering=0) as f:
        f.write(b"+" + body + b"\n")
        time.sleep(random.random() / 300)
        f.write(b"-" + body + b"\n")
    return body

tempool.run()
`

// The programs themselves write down what they run, while callers of the pool, clients with leases by both roads and
// operators do as they like.
func TestNoOtherCallRunsBetweenTheCallsUnderALease(t *testing.T) {
	record := t.TempDir() + "/record"
	const workers = 2
	e := parallel(t, workers, inflight(4), withSpec(func(sp *spec.Spec) {
		sp.Pool.Command = []string{"python3", "-c", recording}
		sp.Pool.Env["RECORD"] = record
		sp.Lease.TTL = spec.Duration(time.Hour)
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	var all sync.WaitGroup
	var calls, leases atomic.Int64
	call := func(id, token string) error {
		request := pool.Request{Method: "tag", Body: []byte(id)}
		if id == "pool" {
			_, err := e.gateway.CallPool(t.Context(), "p", request)
			calls.Add(1)
			return err
		}
		_, err := e.gateway.Do(t.Context(), pool.UnderLease(id, tokenAuthority(token, false)), request,
			func(c *pool.Call, r pool.Request) error { _, err := c.Exchange(r); return err })
		return err
	}
	use := func(lease *api.Lease) {
		leases.Add(1)
		for range 1 + rand.IntN(4) {
			if err := call(lease.ID, lease.Token); err != nil && api.CodeOf(err) != api.CodeSuspended &&
				api.CodeOf(err) != api.CodeLeaseFenced {
				t.Errorf("a call under %s failed: %v", lease.ID, err)
			}
		}
	}
	for range 6 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := call("pool", ""); err != nil && api.CodeOf(err) != api.CodeSuspended {
					t.Errorf("a call of the pool failed: %v", err)
				}
			}
		})
	}
	for i := range 3 {
		all.Go(func() { // by the gateway
			for ctx.Err() == nil {
				lease, err := e.gateway.Checkout(t.Context(), "p",
					pool.CheckoutRequest{Holder: fmt.Sprint("client ", i), WaitMS: timeout.Milliseconds()})
				if err != nil {
					t.Errorf("no lease: %v", err)
					return
				}
				use(lease)
				_, _ = e.gateway.Checkin(t.Context(), lease.ID, tokenAuthority(lease.Token, false),
					[]api.Outcome{api.OutcomeOK, api.OutcomeError}[rand.IntN(2)], "")
			}
		})
	}
	for i := range 2 {
		all.Go(func() { // straight from Temporal, and back there
			for ctx.Err() == nil {
				lease, err := e.control.Checkout(t.Context(), api.WorkerName("p", rand.IntN(workers)),
					tempool.CheckoutOptions{Holder: fmt.Sprint("holder ", i), Token: api.NewLeaseToken()})
				if err != nil {
					sleep.For(ctx.Done(), poll)
					continue
				}
				use(lease)
				_, _ = e.control.CheckinNow(t.Context(), api.CheckinRequest{LeaseID: lease.ID, TokenHash: lease.TokenHash})
			}
		})
	}
	all.Go(func() { // an operator
		for generation := int64(1); ctx.Err() == nil; generation += 2 {
			process := api.Process{Worker: api.WorkerName("p", rand.IntN(workers)), Incarnation: 1}
			if rand.IntN(2) == 0 {
				e.gateway.SetHealth(process.Worker, 1, "so that it rests")
				sleep.For(ctx.Done(), time.Millisecond)
				e.gateway.SetHealth(process.Worker, 1, "")
				continue
			}
			e.gateway.Suspend(t.Context(), api.SuspendRequest{Process: process, Generation: generation,
				Timeout: spec.Duration(20 * time.Millisecond)})
			e.gateway.EndSuspension(t.Context(), api.ResumeRequest{Process: process, Generation: generation + 1})
			sleep.For(ctx.Done(), 50*time.Millisecond)
		}
	})
	require.Eventually(t, func() bool {
		return time.Since(began) > 8*time.Second && leases.Load() > 20 && calls.Load() > 200
	}, timeout, poll)
	stop()
	all.Wait()
	for slot := range workers {
		p, found := e.processes.Get(api.WorkerName("p", slot), 1)
		require.True(t, found)
		requireExclusive(t, fmt.Sprint(record, ".", p.Info().PID))
	}
	t.Logf("%d calls of the pool, %d leases", calls.Load(), leases.Load())
}

// requireExclusive requires that no other call ran between the first and the last call under each lease.
func requireExclusive(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	var lines []string
	last := map[string]int{}
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		last[scanner.Text()[1:]] = len(lines)
		lines = append(lines, scanner.Text())
	}
	running := map[string]int{}
	held := ""
	for i, line := range lines {
		id := line[1:]
		if strings.HasPrefix(line, "-") {
			running[id]--
		} else {
			running[id]++
			if id != "pool" && held != id {
				held = id
			}
		}
		for other, n := range running {
			if n > 0 && held != "" && other != held {
				require.FailNow(t, "a call under "+other+" runs while lease "+held+" is in use", "line %d of %s:\n%s", i+1, path,
					strings.Join(lines[max(0, i-10):i+1], "\n"))
			}
		}
		if held != "" && last[held] == i {
			held = ""
		}
	}
}
