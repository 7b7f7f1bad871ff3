package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// What an earlier release did in a run must be done again when its history is replayed, also with the answers of hosts that had a newer release.
func TestARunOfAnEarlierReleaseDoesWhatThatDid(t *testing.T) {
	for name, c := range map[string]struct {
		change string
		do     func(s *workerEnv) Run
		ended  func(t *testing.T, s *workerEnv)
	}{
		"the spec of the restart that came last counts": {"overtaken-restarts", func(s *workerEnv) Run {
			s.At(time.Minute, func() {
				for _, version := range []int64{3, 2} {
					sp := standalone().Spec
					s.env.SignalWorkflow(api.SignalRestart, api.Restart{Reason: "apply", Spec: &sp, SpecVersion: version})
				}
			})
			return standalone()
		}, func(t *testing.T, s *workerEnv) { require.EqualValues(t, 2, s.state().SpecVersion) }},
		"the result of an agent that has ended is dropped": {"results-outlive-agents", func(s *workerEnv) Run {
			ofEpoch(s)
			s.onReset = func(api.ResetRequest) (api.ResetResult, error) {
				if s.count(&s.stops); s.counted(&s.stops) == 1 {
					s.env.SignalWorkflowSkippingWorkflowTask(api.SignalEpochEnded, inherited(1))
				}
				return api.ResetResult{}, nil
			}
			s.At(time.Second, func() { s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 5_000}) })
			run := standalone()
			run.Spec.Lease.OnExpiry = "reset"
			return run
		}, func(t *testing.T, s *workerEnv) { require.Equal(t, 2, s.counted(&s.stops), "resets") }},
		"a resumption ends no lease": {"resume-ends-lease", func(s *workerEnv) Run {
			s.onSuspend = func(api.SuspendRequest) (api.SuspendResult, error) { return api.SuspendResult{Withdrawn: true}, nil }
			s.onResume = func(api.ResumeRequest) (api.ResumeResult, error) {
				return api.ResumeResult{FencedLease: api.FencedLease{LeaseID: suspendedLease, CallsCut: 1}}, nil
			}
			s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "alice", TTLMS: 600_000}))
			s.At(2*time.Second, s.signal(api.SignalSuspend, api.Control{}))
			s.At(4*time.Second, s.signal(api.SignalResume, api.Control{}))
			return suspending(s)
		}, func(t *testing.T, s *workerEnv) { require.NotNil(t, s.state().Lease) }},
		"a start without resources is a failure": {"no-resources", func(s *workerEnv) Run {
			s.onStart = func(r api.StartRequest) (api.StartResult, error) {
				if r.Incarnation == 1 {
					return api.StartResult{}, temporal.NewNonRetryableApplicationError("no space left on device", string(api.CodeNoWorkers), nil)
				}
				return api.StartResult{Host: "h", PID: 7, TookMS: 1}, nil
			}
			return standalone()
		}, func(t *testing.T, s *workerEnv) {
			require.Equal(t, []lifecycle.EventKind{lifecycle.Start, lifecycle.StartFailed, lifecycle.Start, lifecycle.StartSucceeded}, s.events()[:4])
		}},
		"a pool that asks gets no report": {"answers-pool", func(s *workerEnv) Run {
			s.At(time.Minute, s.signal(api.SignalReport, api.Control{By: "pool"}))
			return inPool(func(*spec.Spec) {})
		}, func(t *testing.T, s *workerEnv) {
			require.Len(t, s.signalsOf(api.SignalWorkerChanged), 1, "that it serves")
		}},
		"a resumption that the host has refused counts": {"later-turns", func(s *workerEnv) Run {
			s.onResume = func(r api.ResumeRequest) (api.ResumeResult, error) {
				if r.Turn < 5 {
					return api.ResumeResult{LaterTurn: 5}, nil
				}
				return api.ResumeResult{}, nil
			}
			s.At(time.Second, s.signal(api.SignalSuspend, api.Control{}))
			s.At(2*time.Second, s.signal(api.SignalResume, api.Control{}))
			return standalone()
		}, func(t *testing.T, s *workerEnv) { require.Len(t, s.resumes, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.earlier = []string{c.change}
			run := c.do(s)
			s.At(2*time.Minute, func() {
				require.Equal(t, name != "a resumption ends no lease", s.state().State == lifecycle.Ready)
				c.ended(t, s)
				s.cancel()
			})
			s.run(run)
		})
	}
}
