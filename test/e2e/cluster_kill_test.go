//go:build cluster

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// disturbance is how long the test continues after each change of the cluster: longer than a heartbeat's timeout.
const disturbance = 15 * time.Second

// clusterScript runs a command of scripts/temporal-cluster.sh.
func clusterScript(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	outputOf(t, exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", "temporal-cluster.sh"), args...))
}

// One after the other, each server process of the cluster is killed and started again while callers call, holders take
// leases and workers crash. This test is not parallel, since it disturbs all others.
func TestAServerProcessOfTheClusterIsKilledUnderLoad(t *testing.T) {
	env := newEnvWith(t)
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
	calls := newSoakCalls()
	for i, host := range hosts {
		client := env.gatewayClient(host)
		group.Go(func() {
			pace := time.NewTicker(2 * time.Millisecond) // leaves the machine to the cluster
			defer pace.Stop()
			for n := 0; ctx.Err() == nil && calls.call(client, fmt.Sprintf(`"caller %d, call %d"`, i, n)); n++ {
				answered.Add(1)
				<-pace.C
			}
		})
	}
	group.Go(func() {
		for wait(ctx, 4*time.Second) {
			killRandomWorker(hosts[rand.N(len(hosts))])
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
			return time.Since(began) > disturbance && answered.Load() > calls+100 && leases.granted.Load() > granted+5
		}, 2*waitTimeout, 10*time.Millisecond, "%s: calls and leases continue", what)
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
	require.NoError(t, calls.err)
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
