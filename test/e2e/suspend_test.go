package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
