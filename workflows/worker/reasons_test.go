package worker

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// Every decision about a worker can be read in its history and in the log, with a reason, and has a word under which
// metrics count it: a cause of rotations or restarts, or why the worker is out of service.
func TestEveryDecisionHasAReasonInHistoryLogAndMetrics(t *testing.T) {
	finding := func(cause api.Cause, reason string) func(*workerEnv, *Run) {
		return func(s *workerEnv, _ *Run) {
			s.watchScript[1] = watchScript{time.Minute, api.WatchResult{Event: api.WatchReplace, Cause: cause, Reason: reason}}
		}
	}
	sent := func(name string, payload any) func(*workerEnv, *Run) {
		return func(s *workerEnv, _ *Run) { s.At(time.Minute, s.signal(name, payload)) }
	}
	restart := func(cause api.Cause, reason string) func(*workerEnv, *Run) {
		return sent(api.SignalRestart, api.Order{Reason: reason, By: "somebody", Cause: cause})
	}
	crashes := func(n int64) func(*workerEnv, *Run) {
		return func(s *workerEnv, _ *Run) {
			for i := range n {
				s.watchScript[i+1] = crash(time.Minute)
			}
		}
	}
	failing := func(code api.Code, details ...any) func(*workerEnv, *Run) {
		return func(s *workerEnv, _ *Run) {
			s.failStartsBy(temporal.NewNonRetryableApplicationError("no module named torch", string(code), nil, details...),
				func(r api.StartRequest) bool { return r.Incarnation == 1 })
		}
	}
	leased := func(s *workerEnv, run *Run) {
		s.At(time.Minute, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 1000}))
	}
	for name, c := range map[string]struct {
		setUp             func(*workerEnv, *Run)
		reason            string // in the history and in the log
		rotation, restart api.Cause
		why               api.ReasonCode
	}{
		"requests": {setUp: finding(api.CauseRequests, "it has served 100 requests"), reason: "it has served 100 requests",
			rotation: api.CauseRequests},
		"memory": {setUp: finding(api.CauseMemory, "it uses 600 MB"), reason: "it uses 600 MB",
			rotation: api.CauseMemory},
		"grade": {setUp: finding(api.CauseGrade, "it is failing"), reason: "it is failing", rotation: api.CauseGrade},
		"prediction": {setUp: finding(api.CausePrediction, "it will run out"), reason: "it will run out",
			rotation: api.CausePrediction},
		"limits": {setUp: finding(api.CauseLimits, "it is over limits.memory"), reason: "it is over limits.memory",
			rotation: api.CauseLimits},
		"uptime": {
			setUp:  func(_ *workerEnv, run *Run) { run.Spec.Rotation.MaxUptime = spec.Duration(time.Hour) },
			reason: "up for 1h", rotation: api.CauseUptime,
		},
		"restart by an operator": {setUp: restart("", "new moon"), reason: "new moon (by somebody)",
			rotation: api.CauseOperator},
		"a new spec": {setUp: restart(api.CauseSpec, "spec 2"), reason: "spec 2 (by somebody)",
			rotation: api.CauseSpec},
		"changed files": {setUp: restart(api.CauseFiles, "file a changed"), reason: "file a changed",
			rotation: api.CauseFiles},
		"pressure": {setUp: restart(api.CausePressure, "no memory"), reason: "no memory",
			rotation: api.CausePressure},

		"a first crash": {setUp: crashes(1), reason: "Restarting immediately (failure 1 of 10): was ended by SIGKILL",
			restart: api.CauseExit},
		"a failed start": {setUp: failing(api.CodeStartFailed), reason: "no module named torch",
			restart: api.CauseStartFailed},
		"superseded": {setUp: failing(api.CodeSuperseded, api.SupersededDetails{Newest: 4}),
			reason: "no module named torch", restart: api.CauseSuperseded},
		"unhealthy": {
			setUp: func(s *workerEnv, run *Run) {
				run.Spec.Health.MaxFailures = 1
				s.watchScript[1] = watchScript{time.Minute,
					api.WatchResult{Event: api.WatchProbeFailed, Reason: "no answer within 5s"}}
			},
			reason: "no answer within 5s (failure 1 of 1)", restart: api.CauseUnhealthy,
		},
		"a lease that expired": {setUp: leased, reason: "t.0.1.1", restart: api.CauseLease},
		"a lost host": {
			setUp: func(s *workerEnv, _ *Run) {
				s.watchScript[1] = watchScript{time.Minute, api.WatchResult{
					Event: api.WatchUnknown, Reason: "its agent was restarted",
					Exit: &lifecycle.Exit{Error: "its agent was restarted"},
				}}
			},
			reason: "its agent was restarted", restart: api.CauseHostLost,
		},

		"backoff": {
			setUp: func(s *workerEnv, run *Run) {
				crashes(2)(s, run)
				run.Spec.Recovery.HealthyReset, run.Spec.Recovery.BackoffInitial = spec.Duration(time.Hour), spec.Duration(
					time.Minute)
			},
			reason: "(failure 2 of 10): was ended by SIGKILL", why: api.ReasonBackoff,
		},
		"giving up": {
			setUp: func(s *workerEnv, run *Run) {
				crashes(1)(s, run)
				run.Spec.Recovery.MaxConsecutiveFailures = 1
			},
			reason: "Gave up after 1 failure in a row", why: api.ReasonGaveUp,
		},
		"a failure after which nothing starts": {
			setUp: func(s *workerEnv, run *Run) {
				crashes(1)(s, run)
				run.Spec.Recovery.Restart = spec.RestartNever
			},
			reason: "was ended by SIGKILL", why: api.ReasonGaveUp,
		},
		"the breaker": {setUp: func(_ *workerEnv, run *Run) { run.StartsPaused = "the breaker is open" },
			reason: "the breaker is open", why: api.ReasonBreaker},
		"the rate of starts": {
			setUp:  func(_ *workerEnv, run *Run) { run.Spec.Start.RatePerSecond = 0.5 },
			reason: "at most 0.5 processes per second", why: api.ReasonStartRate,
		},
		"degraded": {
			setUp: func(s *workerEnv, _ *Run) {
				s.watchScript[1] = watchScript{time.Minute,
					api.WatchResult{Event: api.WatchProbeFailed, Reason: "no answer within 5s"}}
			},
			reason: "no answer within 5s (failure 1 of 3)", why: api.ReasonDegraded,
		},
		"suspended": {setUp: sent(api.SignalSuspend, api.Control{Reason: "a look at it"}), reason: "a look at it",
			why: api.ReasonSuspended},
		"stopped": {setUp: sent(api.SignalDrain, api.Control{Reason: "no need"}), reason: "no need",
			why: api.ReasonStopped},
		"a share of the host's budget": {
			setUp: sent(api.SignalLimitsApplied,
				api.LimitsApplied{Incarnation: 1, MemoryBytes: 1 << 30, Reason: "its equal share"}),
			reason: "its equal share",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			written := &logtest.Log{}
			s.log = log.NewStructuredLogger(slog.New(slog.NewTextHandler(written, nil)))
			run := inPool(func(*spec.Spec) {})
			run.Standalone = c.why == "" // a worker without a pool needs no grants
			run.Spec.Prediction.Enabled = true
			c.setUp(s, &run)
			var counted api.Metrics
			var history []lifecycle.Transition
			s.At(5*time.Hour, func() { counted, history = s.metrics().Metrics, s.history() })
			s.runThrough(run)

			require.Contains(t, reasons(history), c.reason, "the history")
			require.Contains(t, strings.ReplaceAll(written.String(), `\"`, `"`), c.reason, "the log")
			if c.rotation != "" {
				require.Positive(t, counted.RotationsByReason[string(c.rotation)], "%v", counted.RotationsByReason)
			}
			if c.restart != "" {
				require.Positive(t, counted.RestartsByReason[string(c.restart)], "%v", counted.RestartsByReason)
			}
			if c.why != "" {
				words := map[api.ReasonCode]bool{}
				for _, m := range s.signalsOf(api.SignalWorkerChanged) {
					words[m.(api.RosterEntry).ReasonCode] = true
				}
				require.Contains(t, words, c.why)
			}
		})
	}
}
