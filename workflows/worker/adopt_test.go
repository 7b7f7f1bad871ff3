package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// ofEpoch starts processes on host h under epoch 3.
func ofEpoch(s *workerEnv) {
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		return api.StartResult{Host: "h", Epoch: 3, PID: 1000 + int(r.Incarnation), Endpoint: "unix:/old", Rules: r.Rules}, nil
	}
}

// inherited says that epoch 4 has taken over incarnations of epoch 3.
func inherited(incarnations ...int64) api.EpochEnded {
	return api.EpochEnded{Host: "h", Epoch: 3, Reason: "the agent was started again", Kept: incarnations, Heir: &api.Heir{Epoch: 4, Endpoint: "unix:/new"}}
}

func (s *workerEnv) takenOver() (n int) {
	for _, kind := range s.events() {
		if kind == lifecycle.EventKind(lifecycle.TakenOver) {
			n++
		}
	}
	return n
}

func TestAWorkerGoesOnWithAProcessThatTheNextAgentTookOver(t *testing.T) {
	s := newWorkerEnv(t)
	ofEpoch(s)
	var lease, renewed api.Lease
	s.At(time.Second, func() {
		a := s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 600_000})
		s.In(time.Second, func() { lease = *a.Value.(*api.Lease) })
	})
	s.At(time.Minute, s.signal(api.SignalEpochEnded, inherited(1)))
	s.At(time.Minute+30*time.Second, s.signal(api.SignalEpochEnded, inherited(1))) // hosts are told twice
	s.At(2*time.Minute, func() {
		require.Equal(t, lifecycle.Busy, s.state().State)
		require.EqualValues(t, 1, s.state().Incarnation)
		require.Equal(t, 1, s.takenOver(), "%v", s.events())
		s.mu.Lock()
		require.Len(t, s.watches, 1, "the worker claims its process")
		s.mu.Unlock()
		a := s.update(api.UpdateRenew, api.RenewRequest{LeaseID: lease.ID, TTLMS: 600_000})
		s.In(time.Second, func() { renewed = *a.Value.(*api.Lease) })
	})
	s.At(3*time.Minute, func() {
		require.Equal(t, lease.ID, renewed.ID)
		require.Equal(t, "unix:/new", renewed.Endpoint)
		require.Equal(t, 1, s.counted(&s.starts))
	})
	s.At(4*time.Minute, s.signal(api.SignalEpochEnded, api.EpochEnded{Host: "h", Epoch: 4, Reason: "gone"})) // without an heir
	s.At(5*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation, "the process belongs to epoch 4 since")
		s.cancel()
	})
	s.run(standalone())
}

func TestAWorkerIsPlacedAnewWhereItsProcessWasNotTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*workerEnv)
		ended  api.EpochEnded
	}{
		"another incarnation": {func(*workerEnv) {}, inherited(7)},
		"no heir":             {func(*workerEnv) {}, api.EpochEnded{Host: "h", Epoch: 3, Kept: []int64{1}}},
		"about to be replaced": {func(s *workerEnv) {
			s.slow = map[string]time.Duration{api.ActivityStop: time.Hour}
			s.At(30*time.Second, s.signal(api.SignalRestart, api.Restart{Reason: "new files", InPlace: true}))
		}, inherited(1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			ofEpoch(s)
			c.before(s)
			s.At(time.Minute, s.signal(api.SignalEpochEnded, c.ended))
			s.At(2*time.Minute, func() {
				require.EqualValues(t, 2, s.state().Incarnation)
				require.Zero(t, s.takenOver())
				s.slow = nil
				s.cancel()
			})
			s.run(standalone())
		})
	}
}

func TestAnExpiredLeaseIsResetByTheNextAgent(t *testing.T) {
	s := newWorkerEnv(t)
	ofEpoch(s)
	resets := 0
	s.onReset = func(api.ResetRequest) (api.ResetResult, error) {
		s.count(&resets)
		return api.ResetResult{}, nil
	}
	s.slow = map[string]time.Duration{api.ActivityReset: 20 * time.Second}
	s.At(time.Second, func() { s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 5_000}) })
	s.At(10*time.Second, func() {
		require.Equal(t, lifecycle.Degraded, s.state().State)
		s.env.SignalWorkflow(api.SignalEpochEnded, inherited(1))
	})
	s.At(time.Minute, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.EqualValues(t, 1, s.state().Incarnation)
		require.Equal(t, 1, s.takenOver())
		s.cancel()
	})
	run := standalone()
	run.Spec.Lease.OnExpiry = "reset"
	s.run(run)
}
