package worker

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// randomHosts are hosts whose processes live as they would on real ones. Chance decides about their answers until they
// are calm.
type randomHosts struct {
	seed   uint64
	random *rand.Rand // of the disturbances

	mu     sync.Mutex // activities run beside each other and the disturbances
	calm   bool
	draws  map[string]uint64 // by what was drawn for
	newest int64
	live   map[int64]place
	epochs [2]int64
	// suspended is the lease that the newest order to suspend named.
	suspended string
}

// place is where a process lives.
type place struct {
	host  int
	epoch int64
}

func hostName(host int) string { return fmt.Sprintf("h%d", host) }

// draw is a number below n. In which order activities run changes nothing about what each of them draws.
func (h *randomHosts) draw(n int, what string, incarnation int64) int {
	key := fmt.Sprint(what, incarnation)
	h.draws[key]++
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, key, h.draws[key]) // cannot fail
	return rand.New(rand.NewPCG(h.seed, hash.Sum64())).IntN(n)
}

// chance reports true in one of n cases, until the hosts are calm.
func (h *randomHosts) chance(n int, what string, incarnation int64) bool {
	return !h.calm && h.draw(n, what, incarnation) == 0
}

var errNotTaken = temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)

// lost is the failure of an activity about a process; nil if the host takes it. A host that does not take it has lost
// its processes.
func (h *randomHosts) lost(what string, incarnation int64) error {
	p, lives := h.live[incarnation]
	switch {
	case lives && p.epoch < h.epochs[p.host]:
		h.endEpoch(p.host, nil)
		return errNotTaken
	case h.chance(25, what+" not taken", incarnation):
		if lives {
			h.endEpoch(p.host, nil)
		}
		return errNotTaken
	case h.chance(25, what+" failed", incarnation):
		return temporal.NewNonRetryableApplicationError("the host is confused", "internal", nil)
	}
	return nil
}

// endEpoch ends the agent of a host, and all processes but those that its next agent takes over.
func (h *randomHosts) endEpoch(host int, kept []int64) {
	h.epochs[host]++
	for incarnation, p := range h.live {
		switch {
		case p.host != host:
		case slices.Contains(kept, incarnation):
			h.live[incarnation] = place{host, h.epochs[host]}
		default:
			delete(h.live, incarnation)
		}
	}
}

func (h *randomHosts) start(r api.StartRequest) (api.StartResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.chance(10, "start not taken", r.Incarnation):
		return api.StartResult{}, errNotTaken
	case r.Incarnation < h.newest:
		return api.StartResult{}, temporal.NewNonRetryableApplicationError("superseded", string(api.CodeSuperseded), nil,
			api.SupersededDetails{Newest: h.newest})
	}
	h.newest = r.Incarnation
	for incarnation := range h.live {
		if incarnation < r.Incarnation && !slices.Contains(r.KeepIncarnations, incarnation) {
			delete(h.live, incarnation)
		}
	}
	switch {
	case h.chance(10, "exhausted", r.Incarnation):
		return api.StartResult{}, temporal.NewNonRetryableApplicationError("no space left on device",
			string(api.CodeNoWorkers), nil)
	case h.chance(6, "start failed", r.Incarnation):
		return api.StartResult{}, temporal.NewNonRetryableApplicationError("the model file is missing",
			string(api.CodeStartFailed), nil)
	case h.chance(12, "start lost", r.Incarnation):
		return api.StartResult{}, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_HEARTBEAT, nil)
	}
	host := h.draw(len(h.epochs), "host", r.Incarnation)
	h.live[r.Incarnation] = place{host, h.epochs[host]}
	return api.StartResult{Host: hostName(host), Epoch: h.epochs[host], PID: 1000 + int(r.Incarnation),
		Endpoint: "unix:/gateway", Rules: r.Rules}, nil
}

func (h *randomHosts) stop(r api.StopRequest) (api.StopResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.lost("stop", r.Incarnation); err != nil {
		delete(h.live, r.Incarnation) // an agent kills what its worker has moved on from
		return api.StopResult{}, err
	}
	delete(h.live, r.Incarnation)
	return api.StopResult{Exit: lifecycle.Exit{Interrupted: true}, Reason: "stopped"}, nil
}

// use installs the hosts.
func (h *randomHosts) use(s *workerEnv) {
	s.onStart, s.onStop = h.start, h.stop
	s.onProbe = func(r api.WatchRequest) (api.WatchResult, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.lost("probe", r.Incarnation); err != nil {
			return api.WatchResult{}, err
		}
		switch _, lives := h.live[r.Incarnation]; {
		case !lives:
			return api.WatchResult{Event: api.WatchUnknown}, nil
		case h.chance(4, "unhealthy", r.Incarnation):
			return api.WatchResult{Event: api.WatchProbeFailed}, nil
		}
		return api.WatchResult{Event: api.WatchProbePassed}, nil
	}
	s.onDrain = func(r api.DrainRequest) (api.DrainResult, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.lost("drain", r.Incarnation); err != nil {
			return api.DrainResult{}, err
		}
		if h.chance(5, "calls cut", r.Incarnation) {
			return api.DrainResult{CallsCut: 2}, nil
		}
		return api.DrainResult{}, nil
	}
	s.onReset = func(r api.ResetRequest) (api.ResetResult, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.lost("reset", r.Incarnation); err != nil {
			return api.ResetResult{}, err
		}
		if h.chance(3, "reset failed", r.Incarnation) {
			return api.ResetResult{Problem: "it refuses"}, nil
		}
		return api.ResetResult{}, nil
	}
	s.onSuspend = func(r api.SuspendRequest) (api.SuspendResult, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.lost("suspend", r.Incarnation); err != nil {
			return api.SuspendResult{}, err
		}
		h.suspended = r.LeaseID
		result := api.SuspendResult{Withdrawn: h.chance(5, "withdrawn", r.Incarnation)}
		if r.LeaseID != "" {
			result.FencedLease = api.FencedLease{LeaseID: r.LeaseID, Checkin: &api.CheckinRequest{LeaseID: r.LeaseID}}
		}
		return result, nil
	}
	s.onResume = func(r api.ResumeRequest) (api.ResumeResult, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		result := api.ResumeResult{}
		if h.suspended != "" && !r.Suspended && h.chance(2, "fenced", r.Incarnation) {
			result.FencedLease = api.FencedLease{LeaseID: h.suspended, CallsCut: 1}
		}
		return result, h.lost("resume", r.Incarnation)
	}
}

// disturb does something at random to a worker, whose state it gets.
func (h *randomHosts) disturb(s *workerEnv, st api.WorkerState, version *int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.random
	event := func(e api.WatchResult) {
		incarnation := st.Incarnation + int64(r.IntN(2)) - int64(r.IntN(2))
		if e.Exit != nil {
			delete(h.live, incarnation)
		}
		s.env.SignalWorkflow(api.SignalProcessEvents,
			api.ProcessEvents{Events: []api.ProcessEvent{{Incarnation: incarnation, WatchResult: e}}})
	}
	lease := "t.0.1.1"
	if st.Lease != nil {
		lease = st.Lease.ID
	}
	control := api.Control{Reason: "at random"}
	actions := []func(){
		func() { s.env.SignalWorkflow(api.SignalRestart, api.Order{Reason: "at random"}) },
		func() {
			s.env.SignalWorkflow(api.SignalRestart, api.Order{Reason: "pressure", Cause: api.CausePressure, InPlace: true})
		},
		func() {
			*version++
			sp := standalone().Spec
			sp.Rotation.Surge = r.IntN(3) > 0
			s.env.SignalWorkflow(api.SignalRestart,
				api.Order{Reason: "apply", Cause: api.CauseSpec, Spec: &sp, SpecVersion: *version})
		},
		func() { s.env.SignalWorkflow(api.SignalDrain, control) },
		func() { s.env.SignalWorkflow(api.SignalStop, control) },
		func() { s.env.SignalWorkflow(api.SignalSuspend, control) },
		func() { s.env.SignalWorkflow(api.SignalSuspend, control) },
		func() { s.env.SignalWorkflow(api.SignalResume, control) },
		func() { s.env.SignalWorkflow(api.SignalResume, control) },
		func() { s.env.SignalWorkflow(api.SignalRotationGrant, api.RotationGrant{Incarnation: st.Incarnation}) },
		func() { s.env.SignalWorkflow(api.SignalRotationGrant, api.RotationGrant{Incarnation: st.Incarnation}) },
		func() {
			event(api.WatchResult{Event: api.WatchExited, Reason: "was ended by SIGKILL",
				Exit: &lifecycle.Exit{Signal: "SIGKILL"}})
		},
		func() { event(api.WatchResult{Event: api.WatchShutdown, Reason: "the agent stops"}) },
		func() { event(api.WatchResult{Event: api.WatchUnknown, Reason: "unknown process"}) },
		func() { event(api.WatchResult{Event: api.WatchProbeFailed, Reason: "no answer"}) },
		func() { event(api.WatchResult{Event: api.WatchProbePassed}) },
		func() { event(api.WatchResult{Event: api.WatchUnhealthy, Reason: "it says so"}) },
		func() {
			event(api.WatchResult{Event: api.WatchUnhealthy, Reason: "it must go", Cause: api.CauseLimits})
		},
		func() { event(api.WatchResult{Event: api.WatchReplace, Reason: "it is old", Cause: api.CauseUptime}) },
		func() {
			host := r.IntN(len(h.epochs))
			ended := api.EpochEnded{Host: hostName(host), Epoch: h.epochs[host], Reason: "lost"}
			if r.IntN(2) == 0 {
				ended.NextAgent = &api.NextAgent{Epoch: h.epochs[host] + 1}
				if p, lives := h.live[st.Incarnation]; lives && p.host == host {
					ended.Kept = append(ended.Kept, st.Incarnation)
				}
				if p, lives := h.live[st.Successor]; lives && p.host == host && h.draw(2, "successor kept", st.Successor) == 0 {
					ended.Kept = append(ended.Kept, st.Successor)
				}
			}
			h.endEpoch(host, ended.Kept)
			s.env.SignalWorkflow(api.SignalEpochEnded, ended)
		},
		func() { s.env.SignalWorkflow(api.SignalForceContinue, control) },
		func() {
			s.Update(api.UpdateCheckout, api.CheckoutRequest{RequestID: fmt.Sprint(r.IntN(5)), Holder: "me",
				TTLMS: int64(1 + r.IntN(20_000))})
		},
		func() { s.Update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me"}) },
		func() { s.env.SignalWorkflow(api.SignalCheckout, api.CheckoutRequest{Holder: "you"}) },
		func() { s.Update(api.UpdateRenew, api.RenewRequest{LeaseID: lease, TTLMS: 30_000}) },
		func() {
			outcomes := []api.Outcome{"", api.OutcomeError, api.OutcomeClose, "odd"}
			s.env.SignalWorkflow(api.SignalCheckin, api.CheckinRequest{LeaseID: lease, Outcome: outcomes[r.IntN(len(outcomes))]})
		},
		func() { s.Update(api.UpdateCheckin, api.CheckinRequest{LeaseID: lease}) },
		func() {
			s.env.SignalWorkflow(api.SignalStartsPaused, api.StartsPaused{Reason: []string{"", "too many fail"}[r.IntN(2)]})
		},
		func() {
			s.env.SignalWorkflow(api.SignalStartPermitted, api.StartPermitted{Incarnation: st.Incarnation})
		},
		func() { // orders in one workflow task, which the handler of an update may see first
			names := []string{api.SignalRestart, api.SignalStop, api.SignalDrain, api.SignalSuspend, api.SignalResume}
			for range 1 + r.IntN(4) {
				name := names[r.IntN(len(names))]
				s.env.SignalWorkflowSkippingWorkflowTask(name, orderOf(name))
			}
			if r.IntN(2) == 0 {
				s.Update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me"})
			}
			s.together(names[r.IntN(len(names))])
		},
		func() { // a restart that was overtaken
			sp := standalone().Spec
			s.env.SignalWorkflow(api.SignalRestart,
				api.Order{Reason: "apply", Cause: api.CauseSpec, Spec: &sp, SpecVersion: max(1, *version-1)})
		},
		func() { // a restart that its pool may have sent before
			s.env.SignalWorkflow(api.SignalRestart, api.Order{ID: fmt.Sprint(r.IntN(3)), Reason: "at random"})
		},
		func() {
			s.Update(api.UpdateCheckout, api.CheckoutRequest{RequestID: fmt.Sprint(r.IntN(3)), AttemptID: fmt.Sprint(r.IntN(3)),
				Holder: "me"})
		},
		func() {
			s.env.SignalWorkflow(api.SignalWithdrawCheckout, api.Withdrawal{AttemptID: fmt.Sprint(r.IntN(3))})
		},
		func() { // an overlong history
			s.env.SetContinueAsNewSuggested(true)
			s.env.SetCurrentHistoryLength(4096)
			s.env.SignalWorkflow("noise", nil)
			env := s.env
			s.In(time.Duration(1+r.IntN(3000))*time.Millisecond, func() {
				if s.env == env {
					env.SetCurrentHistoryLength(2 * 4096)
					env.SignalWorkflow("noise", nil)
				}
			})
		},
	}
	actions[r.IntN(len(actions))]()
}

// Whatever operators, clients, pools and hosts do to a worker, and in whichever order: once they leave it alone, it
// serves with the newest of its processes and has no other, and its numbers have only grown.
func TestAWorkerServesAfterAnyDisturbances(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { disturbAWorker(t, seed) })
	}
}

// randomWorker is a worker on random hosts.
func randomWorker(t *testing.T, seed uint64) (s *workerEnv, h *randomHosts, run Run) {
	s = newWorkerEnv(t)
	s.log = sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	h = &randomHosts{
		seed: seed, random: rand.New(rand.NewPCG(seed, 1)), draws: map[string]uint64{}, live: map[int64]place{},
		epochs: [2]int64{1, 1},
	}
	h.use(s)
	s.slow = map[string]time.Duration{}
	for _, name := range []string{api.ActivityStart, api.ActivityProbe, api.ActivityDrain, api.ActivityStop,
		api.ActivitySuspend, api.ActivityResume, api.ActivityReset} {
		s.slow[name] = time.Duration(1+h.random.IntN(4000)) * time.Millisecond
	}
	run = standalone()
	run.Standalone = h.random.IntN(2) == 0
	run.ContinueEvery = []int{0, 3, 20}[h.random.IntN(3)]
	run.Spec.Lease.OnExpiry = []string{spec.ExpiryReplace, spec.ExpiryReset}[h.random.IntN(2)]
	run.Spec.Health.Checkpoint = spec.Duration(20 * time.Second)
	return s, h, run
}

// Whatever happens to a worker that is to end, it ends.
func TestAWorkerEndsAmongAnyDisturbances(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { endAWorker(t, seed) })
	}
}

func endAWorker(t *testing.T, seed uint64) {
	s, h, run := randomWorker(t, seed)
	at, version := time.Second, int64(1)
	for range 60 {
		if h.random.IntN(3) > 0 { // else together with the one before
			at += time.Duration(h.random.IntN(6000)) * time.Millisecond
		}
		s.Perhaps(at, func() { h.disturb(s, s.state(), &version) })
	}
	s.Perhaps(time.Duration(h.random.Int64N(int64(at))), s.signal(api.SignalEnd, api.Control{Reason: "it is over"}))
	s.Perhaps(at, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calm = true
	})
	s.Perhaps(at+time.Hour, func() { require.Fail(t, "the worker is open", "%+v", s.state()) })
	s.run(run)
}

func disturbAWorker(t *testing.T, seed uint64) {
	s, h, run := randomWorker(t, seed)
	const disturbances = 150
	at, version, incarnation, sequence := time.Second, int64(1), int64(0), int64(0)
	for range disturbances {
		if h.random.IntN(3) > 0 { // else together with the one before
			at += time.Duration(h.random.IntN(6000)) * time.Millisecond
		}
		s.At(at, func() {
			st := s.state()
			require.GreaterOrEqual(t, st.Incarnation, incarnation, "incarnations only grow")
			incarnation = st.Incarnation
			if st.Lease != nil {
				require.GreaterOrEqual(t, st.Lease.Seq, sequence, "lease numbers only grow")
				sequence = st.Lease.Seq
			}
			h.disturb(s, st, &version)
		})
	}
	s.At(at+time.Minute, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calm = true
		for host, epoch := range h.epochs { // a host's workflow notifies the workers twice
			s.env.SignalWorkflow(api.SignalEpochEnded, api.EpochEnded{Host: hostName(host), Epoch: epoch - 1, Reason: "lost"})
		}
	})
	at += 2 * time.Minute
	s.At(at, s.signal(api.SignalStartsPaused, api.StartsPaused{}))
	s.At(at+time.Second, s.signal(api.SignalResume, api.Control{}))
	s.At(at+2*time.Second, s.signal(api.SignalRestart, api.Order{Reason: "after the disturbances"}))
	var lease = &api.Lease{}
	s.At(at+time.Hour, func() {
		st := s.state()
		require.Equal(t, lifecycle.Ready, st.State, "%s", st.Reason)
		require.Zero(t, st.Successor)
		require.Empty(t, st.Draining)
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Len(t, h.live, 1, "%v", h.live)
		require.Contains(t, h.live, st.Incarnation)
		granted := s.Update(api.UpdateCheckout, api.CheckoutRequest{Holder: "the next"})
		s.In(time.Second, func() { *lease = *granted.Value.(*api.Lease) })
	})
	s.At(at+time.Hour+10*time.Second, func() {
		require.Greater(t, lease.Seq, sequence)
		s.env.SignalWorkflow(api.SignalCheckin, api.CheckinRequest{LeaseID: lease.ID})
	})
	s.At(at+time.Hour+20*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		s.env.SignalWorkflow(api.SignalEnd, api.Control{Reason: "it is over"})
	})
	s.run(run)
	require.Empty(t, h.live)
}
