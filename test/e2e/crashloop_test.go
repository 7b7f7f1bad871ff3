package e2e

import (
	"flag"
	"fmt"
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

// A pool whose program always crashes gives up after exactly recovery.max_consecutive_failures, starts no more often
// than the backoff and (with several workers) the circuit breaker allow, and writes less than one event a second to all
// its histories together from its first failure on. The test shortens the backoff where that does not change the number
// of events, and compares that number with the duration of the default backoff.
func TestACrashLoopGivesUpAndWritesLittleHistory(t *testing.T) {
	const (
		limit  = 10               // default of recovery.max_consecutive_failures
		short  = 10 * time.Second // the longest backoff of this test
		tried  = 4                // failures of each worker of the larger pool; the last one starts after the breaker opened
		perTry = 12               // events that one more attempt behind the breaker costs, at most
		// shortLife is the life of a process that is short-lived for sure, whatever clock measures it.
		shortLife = 500 * time.Millisecond
	)
	require.Equal(t, limit, spec.Default().Recovery.MaxConsecutiveFailures)
	env := oneHost(t, "crashloop")
	start := func(name string, size, failures int, protocol string, program ...string) *tempool.Pool {
		s := spec.Default()
		s.Pool.Name, s.Pool.Size, s.Pool.Command, s.Pool.Protocol = name, size, program, protocol
		s.Recovery.MaxConsecutiveFailures, s.Recovery.BackoffMax = failures, spec.Duration(short+short/20)
		if size > 1 { // the breaker has time to stop the fourth start: workers report their third failure
			s.Recovery.BackoffInitial = spec.Duration(time.Second)
		}
		require.NoError(t, env.client.StartPool(t.Context(), api.PoolStart{Pool: name, Spec: s}))
		return env.client.Pool(name)
	}
	crash := []string{"sh", "-c", "exit 3"} // ready before it exits, since this protocol has no handshake
	one := start("unable", 1, limit, spec.ProtocolFrames, crash...)
	ready := start("crashing", 1, limit, spec.ProtocolJSONRPC, crash...)
	many := start("many", *crashers, tried, spec.ProtocolFrames, crash...)

	for _, p := range []struct {
		pool           *tempool.Pool
		name           string
		size, failures int
	}{{one, "unable", 1, limit}, {ready, "crashing", 1, limit}, {many, "many", *crashers, tried}} {
		patience := time.Duration(p.size*p.failures)*policy.BreakerPause + waitTimeout
		gaveUp := env.waitForWithin(patience, p.pool, "all workers of "+p.name+" give up", func(v api.PoolWorkers) bool {
			return len(v.Workers) == p.size &&
				!slices.ContainsFunc(v.Workers, func(x api.Worker) bool { return x.State != lifecycle.Failed })
		})
		require.Eventually(t, func() bool { // workers report their end to the pool last
			status, err := p.pool.Status(t.Context())
			return err == nil && len(status.Workers) == p.size &&
				!slices.ContainsFunc(status.Workers, func(w api.RosterEntry) bool {
					// which counts starts that a busy Temporal has lost
					return !w.Resting || w.Incarnation != gaveUp.Workers[w.Slot].Incarnation
				})
		}, waitTimeout, 50*time.Millisecond, "the roster of %s has the end of each worker", p.name)
		events := env.acceptedEvents(api.PoolWorkflowID(p.name))
		var behindBreaker []time.Time
		firstFailure := time.Now()
		for slot := range p.size {
			id := api.WorkerWorkflowID(p.name, slot)
			n, by := env.countEvents(id)
			t.Logf("%s: %d events %v", id, n, by)
			events = append(events, env.acceptedEvents(id)...)
			var began, ended, served []time.Time // served is since when a process was ready; zero if it never was
			steps := ""
			for _, step := range env.history(p.pool, slot) {
				steps += fmt.Sprintf("\n%s %s %.100q", step.Timestamp.Format("15:04:05.000"), step.Event, step.Reason)
				switch step.Event {
				case lifecycle.Start, lifecycle.Release:
					began, served = append(began, step.Timestamp), append(served, time.Time{})
				case lifecycle.StartSucceeded:
					served[len(served)-1] = step.Timestamp
				case lifecycle.StartFailed, lifecycle.Exited:
					require.Equal(t, lifecycle.Failed, step.To)
					ended = append(ended, step.Timestamp)
				}
			}
			require.Len(t, began, p.failures, "one start for each failure, and none after the last")
			require.Len(t, ended, p.failures)
			for i := 1; i < len(began); i++ {
				wait := min(defaultBackoff(i), short)
				// on a busy machine the shell takes long to exit
				if up := served[i-1]; i > 1 && !up.IsZero() && ended[i-1].Sub(up) > shortLife {
					wait = min(wait, defaultBackoff(2))
				}
				require.GreaterOrEqual(t, began[i].Sub(ended[i-1]), wait*9/10, "%s before start %d%s", id, i+1, steps)
			}
			behindBreaker = append(behindBreaker, began[len(began)-1])
			if ended[0].Before(firstFailure) {
				firstFailure = ended[0]
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
		t.Logf("%s: %d events in %s: %.2f a second", p.name, written, lasts.Round(time.Second),
			float64(written)/lasts.Seconds())
		require.Less(t, float64(written), 0.95*lasts.Seconds(), "%s: less than one event a second", p.name)
		if p.size > 1 {
			slices.SortFunc(behindBreaker, time.Time.Compare)
			for i := 1; i < p.size; i++ {
				require.GreaterOrEqual(t, behindBreaker[i].Sub(behindBreaker[i-1]), policy.BreakerPause*9/10,
					"one worker starts at a time")
			}
		}
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
