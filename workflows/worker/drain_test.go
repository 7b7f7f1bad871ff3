package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestDrainWaitsForTheLeaseAndThenRests(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.At(2*time.Second, s.signal(api.SignalDrain, api.Control{Reason: "new disk", By: "op"}))
	s.At(3*time.Second, func() {
		require.Equal(t, lifecycle.Draining, s.state().State)
		s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"})()
	})
	s.At(4*time.Second, func() {
		require.Equal(t, lifecycle.Stopped, s.state().State)
		s.signal(api.SignalRestart, api.Restart{})()
	})
	s.At(5*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.EqualValues(t, 2, s.state().Incarnation)
		s.cancel()
	})
	s.run(standalone())
	require.Contains(t, s.events(), lifecycle.Drained)
}

func TestDrainGivesUpWaitingAfterItsTimeout(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.At(2*time.Second, s.signal(api.SignalDrain, api.Control{}))
	s.At(20*time.Second, func() {
		require.Equal(t, lifecycle.Stopped, s.state().State)
		s.cancel()
	})
	s.run(standalone())
	require.Contains(t, s.events(), lifecycle.DrainTimeout)
}

// Without a lease a worker stops at once, unless its program has to release sessions first.
func TestADrainWithoutALeaseWaitsForTheReleaseOfSessions(t *testing.T) {
	for name, releases := range map[string]bool{"releases": true, "has no such hook": false} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.slow = map[string]time.Duration{api.ActivityDrain: 2 * time.Second}
			s.onStart = func(r api.StartRequest) (api.StartResult, error) {
				return api.StartResult{Host: "h", PID: 1, ReleasesSessions: releases}, nil
			}
			drains := 0
			s.onDrain = func(api.DrainRequest) (api.DrainResult, error) {
				drains++
				return api.DrainResult{Drained: true}, nil
			}
			s.At(time.Second, s.signal(api.SignalDrain, api.Control{}))
			s.At(2*time.Second, func() {
				require.Equal(t, releases, s.state().State == lifecycle.Draining)
			})
			s.At(4*time.Second, func() {
				require.Equal(t, lifecycle.Stopped, s.state().State)
				s.cancel()
			})
			s.run(standalone())
			require.Equal(t, releases, drains == 1)
		})
	}
}
