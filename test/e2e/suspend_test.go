package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func (env *testEnv) signal(pool *tempool.Pool, slot int, signal, reason string) {
	env.t.Helper()
	env.repeat(func(ctx context.Context) error { return pool.Signal(ctx, slot, signal, api.Control{Reason: reason}) })
}

func TestASuspension(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"takes a lease that its holder keeps renewing":          suspensionTakesALease,
		"fails no call under load":                              suspensionUnderLoad,
		"its hooks run and delay nothing":                       hooksOfASuspension,
		"a frozen worker is not probed, and continues or stops": frozenWorkers,
	})
}

// A client renews its lease forever and calls without a pause. The suspension refuses both at once and fences the lease
// when drain_timeout is over; the process stays.
func suspensionTakesALease(env *testEnv) {
	t := env.t
	s := pythonSpec("suspend-lease", 1, "suspend.py")
	const drain, ttl = 20 * time.Second, time.Minute // a lease this long is renewed in time on a machine that stalls
	s.Rotation.DrainTimeout = spec.Duration(drain)
	pool := env.startPool(s)
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", TTL: ttl, Wait: waitTimeout})
	var pid int
	require.NoError(t, lease.Call(t.Context(), "work", []int{0}, &pid))
	folder, long := startLingering(t, lease)
	env.waitState(pool, 0, lifecycle.Busy)

	began := time.Now()
	env.signal(pool, 0, api.SignalSuspend, "a look at it")
	require.Eventually(t, func() bool { return errors.Is(lease.Renew(t.Context()), tempool.ErrSuspended) }, waitTimeout,
		10*time.Millisecond, "a renewal is refused")
	require.Eventually(t, func() bool { // at once: one that came before the suspension would wait for the call in flight
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return api.CodeOf(lease.Call(ctx, "work", []int{0}, nil)) == api.CodeSuspended
	}, waitTimeout, 10*time.Millisecond, "a new call under the lease is refused")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "release"), nil, 0o600))
	require.NoError(t, <-long, "the call in flight finishes")
	state := env.waitState(pool, 0, lifecycle.Suspended)
	require.GreaterOrEqual(t, time.Since(began), drain, "the holder has had drain_timeout to return the lease")
	require.Equal(t, pid, state.PID)
	require.Contains(t, state.Reason, "a look at it")
	require.Eventually(t, func() bool { return errors.Is(lease.Err(), tempool.ErrLeaseFenced) }, waitTimeout,
		20*time.Millisecond, "its client learns that the lease is fenced")

	env.signal(pool, 0, api.SignalResume, "")
	env.waitState(pool, 0, lifecycle.Ready)
	var after int
	require.NoError(t, pool.Call(t.Context(), "work", []int{0}, &after))
	require.Equal(t, pid, after, "the process is the same")
}

// startLingering starts a call that lasts until the folder has a file "release", and returns once it is in flight.
func startLingering(t *testing.T, lease *tempool.Lease) (folder string, ended <-chan error) {
	t.Helper()
	folder = t.TempDir()
	answered := make(chan error, 1)
	go func() { answered <- lease.Call(t.Context(), "linger", []string{folder}, nil) }()
	require.Eventually(t, func() bool { return exists(folder, "begun") }, waitTimeout, 10*time.Millisecond,
		"a call is in flight")
	return folder, answered
}

func exists(folder, file string) bool {
	_, err := os.Stat(filepath.Join(folder, file))
	return err == nil
}

// Callers keep all workers of a pool busy. The suspended one gets no further call; the others serve them all.
func suspensionUnderLoad(env *testEnv) {
	t := env.t
	s := pythonSpec("suspend-load", 2, "suspend.py")
	s.Rotation.MaxRequests = 0
	pool := env.startPool(s)
	pids := env.pids(pool, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	var byFirst, all atomic.Int64
	const callers = 6
	for range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				var pid int
				err := pool.Call(ctx, "work", []int{5}, &pid)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				all.Add(1)
				if pid == pids["suspend-load/0"] {
					byFirst.Add(1)
				}
			}
		})
	}
	served := func(counter *atomic.Int64, what string) {
		t.Helper()
		from := counter.Load()
		require.Eventually(t, func() bool { return counter.Load() > from+10*callers }, waitTimeout, 10*time.Millisecond, what)
	}
	served(&byFirst, "the first worker serves")
	began := time.Now()
	env.signal(pool, 0, api.SignalSuspend, "")
	env.waitState(pool, 0, lifecycle.Suspended)
	t.Logf("suspended after %s", time.Since(began))
	before := byFirst.Load()
	served(&all, "the other worker serves")
	require.LessOrEqual(t, byFirst.Load(), before+callers, "at most the answers that their callers had not counted")
	env.signal(pool, 0, api.SignalResume, "")
	served(&byFirst, "the first worker serves again")
	cancel()
	group.Wait()
	require.Equal(t, pids, env.pids(pool, 2), "no process is replaced")
}
