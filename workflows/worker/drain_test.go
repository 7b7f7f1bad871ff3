package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestDrainWaitsForTheLeaseAndThenRests(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(2*time.Second, s.signal(api.SignalDrain, api.Control{Reason: "new disk", By: "op"}))
	s.at(3*time.Second, func() {
		require.Equal(t, lifecycle.Draining, s.state().State)
		s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"})()
	})
	s.at(4*time.Second, func() {
		require.Equal(t, lifecycle.Stopped, s.state().State)
		s.signal(api.SignalRestart, api.Restart{})()
	})
	s.at(5*time.Second, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.EqualValues(t, 2, s.state().Incarnation)
		s.cancel()
	})
	s.play(orphan())
	require.Contains(t, s.events(), lifecycle.Drained)
}

func TestDrainGivesUpWaitingAfterItsTimeout(t *testing.T) {
	s := newStage(t)
	s.at(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.at(2*time.Second, s.signal(api.SignalDrain, api.Control{}))
	s.at(20*time.Second, func() {
		require.Equal(t, lifecycle.Stopped, s.state().State)
		s.cancel()
	})
	s.play(orphan())
	require.Contains(t, s.events(), lifecycle.DrainTimeout)
}
