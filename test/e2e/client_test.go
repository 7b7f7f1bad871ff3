package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestCallsSpreadOverTwoAgentsAndSurviveTheDeathOfOne(t *testing.T) {
	env := newEnv(t)
	left := env.startAgent("left", "--capacity", "2")
	pool, notes := env.startTroublePool("spread", 2)
	env.startAgent("right", "--capacity", "2")
	scales(4)(env, pool)
	for slot, worker := range env.waitReady(pool, 4).Workers {
		require.Equal(t, []string{"left", "right"}[slot/2], worker.Host)
	}
	var mu sync.Mutex
	served := map[string]int{}
	watched := pool.With(tempool.CallOptions{Timeout: waitTimeout, Answered: func(a tempool.Answer) {
		mu.Lock()
		defer mu.Unlock()
		served[a.Endpoint]++
	}})
	call := func(ctx context.Context, name string) error {
		var answer string
		err := watched.Call(ctx, "nap", []any{0, name}, &answer)
		if err == nil && answer != name {
			return fmt.Errorf("sent %q and got %q", name, answer)
		}
		return err
	}
	// Calls that the dying host may have started fail with Started; the client sends all others to the other host.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers sync.WaitGroup
	var dying, dead atomic.Bool // from before and after the kill on
	var done, broken atomic.Int64
	for i := range 8 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				afterDeath := dead.Load()
				err := call(ctx, fmt.Sprint(i, ".", n))
				var coded *api.Error
				switch {
				case err == nil:
					done.Add(1)
				case ctx.Err() != nil:
				case dying.Load() && !afterDeath && errors.As(err, &coded) && coded.Started:
					broken.Add(1)
				default:
					t.Errorf("call %d of caller %d, after the death: %v: %v", n, i, afterDeath, err)
					return
				}
			}
		})
	}
	sockets := []string{"unix:" + env.socket("left"), "unix:" + env.socket("right")}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(served) == 2 && served[sockets[0]] >= 50 && served[sockets[1]] >= 50
	}, waitTimeout, time.Millisecond, "both hosts serve")
	held := make(chan error, 1) // of a call that is in flight for sure
	go func() { held <- pool.Worker(0).Call(t.Context(), "nap", []any{3600, "held"}, nil) }()
	waitForNote(t, notes, "begin held")
	dying.Store(true)
	left.kill()
	dead.Store(true)
	var lost *api.Error
	require.ErrorAs(t, await(t, held), &lost)
	require.True(t, lost.Started, "%v", lost)
	awaitMore(t, "calls that succeed", 200, &done)
	cancel()
	callers.Wait()
	t.Logf("%d calls succeeded, %d failed with the agent", done.Load(), broken.Load())
	content, err := os.ReadFile(notes)
	require.NoError(t, err)
	begun := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		if words := strings.Fields(line); words[0] == "begin" {
			require.False(t, begun[words[1]], "%s ran twice", words[1])
			begun[words[1]] = true
		}
	}
	require.GreaterOrEqual(t, int64(len(begun)), done.Load(), "each call that was answered ran")
}

func renewedLease(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("kept", 1))
	const ttl = time.Minute // a client that is not run for 40 s of it loses its lease
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", TTL: ttl, Wait: waitTimeout})
	pid := string(callLease(t, lease, "pid"))
	calls := int64(1)
	var held api.WorkerState
	// so it was renewed after its first end, with a call now and then
	for held.Lease == nil || held.Lease.ExpiresAt.Before(lease.ExpiresAt.Add(ttl)) {
		select {
		case <-lease.Done():
			require.NoError(t, lease.Err(), "the lease was lost")
		case <-time.After(500 * time.Millisecond):
			require.Equal(t, pid, string(callLease(t, lease, "pid")))
			calls++
			held = env.waitState(pool, 0, lifecycle.Busy)
			require.Equal(t, lease.ID, held.Lease.ID)
		}
	}
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	freed := env.waitState(pool, 0, lifecycle.Ready)
	require.Equal(t, held.Incarnation, freed.Incarnation)
	env.waitFor(pool, "each call is counted once", func(v api.PoolWorkers) bool {
		require.LessOrEqual(t, v.Workers[0].RequestsServed, calls)
		return v.Workers[0].RequestsServed == calls
	})
}
