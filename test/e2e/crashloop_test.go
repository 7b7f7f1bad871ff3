package e2e

import (
	"flag"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// crashers is the size of the largest pool in TestACrashLoopGivesUpAndWritesLittleHistory; make soak uses four.
var crashers = flag.Int("crashers", 2, "workers of the pool whose program always crashes")

// defaultBackoff is the default backoff after a number of consecutive failures.
func defaultBackoff(failure int) time.Duration {
	r := policy.Recovery(spec.Default().Recovery)
	r.MaxConsecutiveFailures = 0
	return r.Next(failure, true, "", 0.5).Delay
}

// A pool whose program always crashes gives up, and writes less than one event a second to all its histories together
// from its first failure on. The test shortens the backoff where that does not change the number of events, and
// compares that number with the duration of the default backoff.
func TestACrashLoopGivesUpAndWritesLittleHistory(t *testing.T) {
	const (
		limit  = 10               // default of recovery.max_consecutive_failures
		short  = 10 * time.Second // the longest backoff of this test
		tried  = 4                // failures of each worker of the larger pool; the last start is behind the breaker
		perTry = 12               // events that one more attempt behind the breaker costs, at most
	)
	require.Equal(t, limit, spec.Default().Recovery.MaxConsecutiveFailures)
	env := oneHost(t, "crashloop")
	pools := map[string]struct {
		size, failures int
		protocol       string // one without a handshake is ready before it exits
	}{
		"unable": {1, limit, spec.ProtocolFrames}, "crashing": {1, limit, spec.ProtocolJSONRPC},
		"many": {*crashers, tried, spec.ProtocolFrames},
	}
	for name, p := range pools {
		s := spec.Default()
		s.Pool.Name, s.Pool.Size, s.Pool.Command, s.Pool.Protocol = name, p.size, []string{"sh", "-c", "exit 3"}, p.protocol
		s.Recovery.MaxConsecutiveFailures, s.Recovery.BackoffMax = p.failures, spec.Duration(short+short/20)
		if p.size > 1 { // the breaker has time to stop the fourth start: workers report their third failure
			s.Recovery.BackoffInitial = spec.Duration(time.Second)
		}
		env.beginPool(s)
	}
	for name, p := range pools {
		pool := env.client.Pool(name)
		patience := time.Duration(p.size*p.failures)*policy.BreakerPause + waitTimeout
		env.waitForWithin(patience, pool, "all workers of "+name+" give up", func(v api.PoolWorkers) bool {
			return len(v.Workers) == p.size && !slices.ContainsFunc(v.Workers, func(w api.Worker) bool {
				return w.State != lifecycle.Failed || w.ConsecutiveFailures != p.failures
			})
		})
		until(env, "the roster has not the end of each worker", pool.Status, func(status api.PoolStatus) bool {
			return len(status.Workers) == p.size && // workers report their end to the pool last
				!slices.ContainsFunc(status.Workers, func(w api.RosterEntry) bool { return !w.Resting })
		})
		events := env.acceptedEvents(api.PoolWorkflowID(name))
		firstFailure := time.Now()
		for slot := range p.size {
			events = append(events, env.acceptedEvents(api.WorkerWorkflowID(name, slot))...)
			for _, step := range env.history(pool, slot) {
				if step.To == lifecycle.Failed && step.Timestamp.Before(firstFailure) {
					firstFailure = step.Timestamp
				}
			}
		}
		lasts := time.Duration(0)
		for failure := 1; failure < limit; failure++ {
			wait := defaultBackoff(failure)
			if p.size > 1 && failure >= tried-1 {
				wait = time.Duration(p.size) * max(wait, policy.BreakerPause) // one worker after the other
			}
			lasts += wait
		}
		written := (limit - p.failures) * p.size * perTry
		for _, e := range events {
			if e.GetEventTime().AsTime().After(firstFailure) { // before that they are those of any pool
				written++
			}
		}
		t.Logf("%s: %d events in %s: %.2f a second", name, written, lasts.Round(time.Second),
			float64(written)/lasts.Seconds())
		require.Less(t, float64(written), 0.95*lasts.Seconds(), "%s: less than one event a second", name)
	}
}

// A start that waits on its host for the end of others waits longer than its own start.timeout; the host is not lost.
func TestAStartWaitsForOthersThatHang(t *testing.T) {
	env := oneHost(t, "busy")
	begin := func(name string, size int, timeout time.Duration, program ...string) *tempool.Pool {
		s := spec.Default()
		s.Pool.Name, s.Pool.Size, s.Pool.Command = name, size, program
		s.Start.Timeout, s.Recovery.MaxConsecutiveFailures = spec.Duration(timeout), 1
		return env.beginPool(s)
	}
	hangs := begin("hangs", runtime.NumCPU(), 45*time.Second, "sleep", "1000")
	env.waitFor(hangs, "all starts are under way", func(v api.PoolWorkers) bool {
		return len(v.Workers) > 0 && !slices.ContainsFunc(v.Workers,
			func(w api.Worker) bool { return w.State != lifecycle.Starting })
	})
	quick := begin("quick", 1, 10*time.Second, "sh", "-c", "exit 3")
	failed := env.waitFor(quick, "its start has failed", func(v api.PoolWorkers) bool {
		return len(v.Workers) == 1 && v.Workers[0].State == lifecycle.Failed
	})
	require.EqualValues(t, 1, failed.Workers[0].Incarnation, failed.Workers[0].Reason)
}
