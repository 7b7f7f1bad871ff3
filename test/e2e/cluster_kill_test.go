//go:build cluster

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// disturbance is how long the test goes on after each change of the cluster: longer than a heartbeat's timeout.
const disturbance = 15 * time.Second

// clusterScript runs a command of scripts/temporal-cluster.sh.
func clusterScript(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", "temporal-cluster.sh"), args...).CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// heldLease is a lease and the time for which its holder used it, between the end of the checkout and the start of the checkin.
type heldLease struct {
	worker     string
	seq        int64
	begin, end time.Time
}

// leaseLoad takes leases of a pool, calls under them and returns them.
type leaseLoad struct {
	pool    *tempool.Pool
	granted atomic.Int64
	called  atomic.Int64

	mu   sync.Mutex
	held []heldLease
}

func (l *leaseLoad) run(ctx context.Context, holder string) {
	for n := 0; ctx.Err() == nil; n++ {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		lease, err := l.pool.Checkout(once, tempool.CheckoutOptions{Holder: holder, TTL: 20 * time.Second, Wait: 5 * time.Second})
		if err != nil { // part of the control plane is down: the load goes on as soon as it can
			cancel()
			continue
		}
		l.granted.Add(1)
		held := heldLease{worker: lease.Worker, seq: lease.Seq, begin: time.Now()}
		if _, err := lease.CallRaw(once, "echo", []byte(strconv.Itoa(n))); err == nil {
			l.called.Add(1)
		}
		held.end = time.Now()
		if lease.Err() != nil { // the lease ended before its use did
			held.end = held.begin
		}
		_ = lease.Checkin(once, api.OutcomeOK) // else it expires
		cancel()
		l.mu.Lock()
		l.held = append(l.held, held)
		l.mu.Unlock()
	}
}

// requireExclusive fails the test if two leases of one worker overlap, or have the same number.
func (l *leaseLoad) requireExclusive(t *testing.T) {
	byWorker := map[string][]heldLease{}
	for _, held := range l.held {
		byWorker[held.worker] = append(byWorker[held.worker], held)
	}
	for worker, held := range byWorker {
		slices.SortFunc(held, func(a, b heldLease) int { return a.begin.Compare(b.begin) })
		for i := 1; i < len(held); i++ {
			require.Less(t, held[i-1].seq, held[i].seq, "%s: leases out of order", worker)
			require.False(t, held[i].begin.Before(held[i-1].end), "%s: leases %d and %d overlap", worker, held[i-1].seq, held[i].seq)
		}
	}
}

// One after the other, each server process of the cluster is killed and started again while callers call, holders take leases and workers
// crash. This test is not parallel, since it disturbs all others.
func TestAServerProcessOfTheClusterIsKilledUnderLoad(t *testing.T) {
	env := newEnv(t)
	hosts := []string{"left", "right"}
	for _, host := range hosts {
		env.startAgent(host, "--capacity", "4")
	}
	s := echoSpec("soak", 6)
	s.Recovery.MaxConsecutiveFailures, s.Recovery.BackoffMax = 1_000_000, spec.Duration(time.Second)
	pool := env.startPool(s)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	leases := &leaseLoad{pool: pool}
	for i := range 3 {
		group.Go(func() { leases.run(ctx, fmt.Sprint("holder ", i)) })
	}
	var answered atomic.Int64
	callers := make([]*soakCaller, 2*len(hosts))
	for i := range callers {
		c := &soakCaller{client: env.gatewayClient(hosts[i%len(hosts)]), started: map[api.Code]int64{}, notStarted: map[api.Code]int64{}}
		callers[i] = c
		group.Go(func() {
			for n := 0; ctx.Err() == nil && c.call(fmt.Sprintf(`"caller %d, call %d"`, i, n)); n++ {
				answered.Add(1)
			}
		})
	}
	group.Go(func() {
		for every := time.NewTicker(2 * time.Second); ; {
			select {
			case <-every.C:
				killRandomWorker(hosts[rand.N(len(hosts))])
			case <-ctx.Done():
				every.Stop()
				return
			}
		}
	})

	progress := func(what string) {
		t.Helper()
		began, calls, granted := time.Now(), answered.Load(), leases.granted.Load()
		first := time.Duration(0)
		require.Eventually(t, func() bool {
			if first == 0 && leases.granted.Load() > granted {
				first = time.Since(began)
			}
			return time.Since(began) > disturbance && answered.Load() > calls+100 && leases.granted.Load() > granted+10
		}, waitTimeout, 10*time.Millisecond, "%s: calls and leases go on", what)
		t.Logf("%s: first lease after %s; %d calls and %d leases in %s", what, first.Round(10*time.Millisecond),
			answered.Load()-calls, leases.granted.Load()-granted, time.Since(began).Round(time.Second))
	}
	for _, node := range []string{"1", "2"} {
		clusterScript(t, "kill", node)
		progress("server process " + node + " killed")
		clusterScript(t, "start", node)
		progress("server process " + node + " started")
	}
	cancel()
	group.Wait()
	for _, c := range callers {
		require.NoError(t, c.err)
	}
	leases.requireExclusive(t)
	t.Logf("%d leases, %d calls under them", leases.granted.Load(), leases.called.Load())
	env.waitReady(pool, s.Pool.Size)
	require.Eventually(t, func() bool { // a rotation may be under way
		view, err := pool.Workers(t.Context())
		processes := slices.Concat(hostProcesses(hosts[0]), hostProcesses(hosts[1]))
		return err == nil && view.Ready == s.Pool.Size && len(processes) == s.Pool.Size &&
			!slices.ContainsFunc(view.Workers, func(worker api.Worker) bool { return !slices.Contains(processes, worker.PID) })
	}, waitTimeout, 100*time.Millisecond, "each worker has one process, and no other process is left")
}
