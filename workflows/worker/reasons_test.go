package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// pages is a log that a test reads.
type pages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *pages) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// Every decision about a worker can be read in its history and in the log, with a reason, and has a word under which metrics count it: a
// cause of rotations or restarts, or why the worker is out of service.
func TestEveryDecisionsReasonIsInTheHistoryTheLogAndALabel(t *testing.T) {
	finding := func(cause api.Cause, reason string) func(*stage, *Run) {
		return func(s *stage, _ *Run) {
			s.fate[1] = fate{time.Minute, api.WatchResult{Event: api.WatchReplace, Cause: cause, Reason: reason}}
		}
	}
	told := func(name string, payload any) func(*stage, *Run) {
		return func(s *stage, _ *Run) { s.at(time.Minute, s.signal(name, payload)) }
	}
	restart := func(cause api.Cause, reason string) func(*stage, *Run) {
		return told(api.SignalRestart, api.Restart{Reason: reason, By: "somebody", Cause: cause})
	}
	crashes := func(n int64) func(*stage, *Run) {
		return func(s *stage, _ *Run) {
			for i := range n {
				s.fate[i+1] = crash(time.Minute)
			}
		}
	}
	failing := func(code api.Code, details ...any) func(*stage, *Run) {
		return func(s *stage, _ *Run) {
			s.onStart = func(r api.StartRequest) (api.StartResult, error) {
				if r.Incarnation == 1 {
					return api.StartResult{}, temporal.NewNonRetryableApplicationError("no module named torch", string(code), nil, details...)
				}
				return api.StartResult{Host: "h", PID: 7}, nil
			}
		}
	}
	leased := func(s *stage, run *Run) {
		s.at(time.Minute, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 1000}))
	}
	for name, c := range map[string]struct {
		play              func(*stage, *Run)
		reason            string // in the history and in the log
		rotation, restart api.Cause
		why               api.ReasonCode
	}{
		"requests":   {play: finding(api.CauseRequests, "it has served 100 requests"), reason: "it has served 100 requests", rotation: api.CauseRequests},
		"memory":     {play: finding(api.CauseMemory, "it uses 600 MB"), reason: "it uses 600 MB", rotation: api.CauseMemory},
		"grade":      {play: finding(api.CauseGrade, "it is failing"), reason: "it is failing", rotation: api.CauseGrade},
		"prediction": {play: finding(api.CausePrediction, "it will run out"), reason: "it will run out", rotation: api.CausePrediction},
		"limits":     {play: finding(api.CauseLimits, "it is over limits.memory"), reason: "it is over limits.memory", rotation: api.CauseLimits},
		"uptime": {
			play:   func(_ *stage, run *Run) { run.Spec.Rotation.MaxUptime = spec.Duration(time.Hour) },
			reason: "it has been up for 1h0m0s", rotation: api.CauseUptime,
		},
		"restart by an operator": {play: restart("", "new moon"), reason: "new moon (by somebody)", rotation: api.CauseOperator},
		"a new spec":             {play: restart(api.CauseSpec, "spec 2"), reason: "spec 2 (by somebody)", rotation: api.CauseSpec},
		"changed files":          {play: restart(api.CauseFiles, "file a changed"), reason: "file a changed", rotation: api.CauseFiles},
		"pressure":               {play: restart(api.CausePressure, "no memory"), reason: "no memory", rotation: api.CausePressure},

		"a first crash":  {play: crashes(1), reason: "Restarting at once after a first failure of at most 10: was ended by SIGKILL", restart: api.CauseExit},
		"a failed start": {play: failing(api.CodeStartFailed), reason: "no module named torch", restart: api.CauseStartFailed},
		"superseded":     {play: failing(api.CodeSuperseded, api.SupersededDetails{Newest: 4}), reason: "no module named torch", restart: api.CauseSuperseded},
		"unhealthy": {
			play: func(s *stage, run *Run) {
				run.Spec.Health.MaxFailures = 1
				s.fate[1] = fate{time.Minute, api.WatchResult{Event: api.WatchProbeFailed, Reason: "no answer within 5s"}}
			},
			reason: "no answer within 5s (failure 1 of 1)", restart: api.CauseUnhealthy,
		},
		"a lease that expired": {play: leased, reason: "t.0.1.1", restart: api.CauseLease},
		"a lost host": {
			play: func(s *stage, _ *Run) {
				s.fate[1] = fate{time.Minute, api.WatchResult{
					Event: api.WatchUnknown, Reason: "its agent was restarted", Exit: &lifecycle.Exit{Error: "its agent was restarted"},
				}}
			},
			reason: "its agent was restarted", restart: api.CauseHostLost,
		},

		"backoff": {
			play: func(s *stage, run *Run) {
				crashes(2)(s, run)
				run.Spec.Recovery.HealthyReset, run.Spec.Recovery.BackoffInitial = spec.Duration(time.Hour), spec.Duration(time.Minute)
			},
			reason: "after failure 2 of at most 10 in a row: was ended by SIGKILL", why: api.ReasonBackoff,
		},
		"giving up": {
			play: func(s *stage, run *Run) {
				crashes(1)(s, run)
				run.Spec.Recovery.MaxConsecutiveFailures = 1
			},
			reason: "Gave up after 1 failure in a row", why: api.ReasonGaveUp,
		},
		"the breaker": {play: func(_ *stage, run *Run) { run.StartsHeld = "the breaker is open" }, reason: "the breaker is open", why: api.ReasonBreaker},
		"the rate of starts": {
			play:   func(_ *stage, run *Run) { run.Spec.Start.RatePerSecond = 0.5 },
			reason: "at most 0.5 processes a second", why: api.ReasonStartRate,
		},
		"degraded": {
			play: func(s *stage, _ *Run) {
				s.fate[1] = fate{time.Minute, api.WatchResult{Event: api.WatchProbeFailed, Reason: "no answer within 5s"}}
			},
			reason: "no answer within 5s (failure 1 of 3)", why: api.ReasonDegraded,
		},
		"suspended": {play: told(api.SignalSuspend, api.Control{Reason: "a look at it"}), reason: "a look at it", why: api.ReasonSuspended},
		"stopped":   {play: told(api.SignalDrain, api.Control{Reason: "no need"}), reason: "no need", why: api.ReasonStopped},
		"a share of the host's budget": {
			play:   told(api.SignalLimitsApplied, api.LimitsApplied{Incarnation: 1, MemoryBytes: 1 << 30, Reason: "its equal share"}),
			reason: "its equal share",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			written := &pages{}
			s.log = log.NewStructuredLogger(slog.New(slog.NewTextHandler(written, nil)))
			run := inPool(func(*spec.Spec) {})
			run.Standalone = c.why == "" // who has no pool takes its turns by itself
			run.Spec.Prediction.Enabled = true
			c.play(s, &run)
			var counted api.Metrics
			var history []lifecycle.Transition
			s.at(5*time.Hour, func() {
				counted, history = s.metrics().Metrics, s.history()
				s.signal(api.SignalEnd, api.Control{})()
			})
			s.play(run)

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
				for _, m := range s.toldOf(api.SignalWorkerChanged) {
					words[m.(api.WorkerChanged).ReasonCode] = true
				}
				require.Contains(t, words, c.why)
			}
		})
	}
}
