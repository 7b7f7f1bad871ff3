package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// transitions are those that were emitted.
func (s *workerEnv) transitions() (all []lifecycle.Transition) {
	for _, e := range s.emitted {
		if e.eventType == api.EventWorkerTransitioned {
			all = append(all, e.data.(api.TransitionEvent).Transition)
		}
	}
	return all
}

// others are the other events in short: type, lease and outcome.
func (s *workerEnv) others() (all []string) {
	for _, e := range s.emitted {
		if data, ok := e.data.(api.LeaseEvent); ok {
			all = append(all, strings.Join(strings.Fields(e.eventType+" "+data.LeaseID+" "+data.Outcome+" "+string(data.Code)), " "))
		}
	}
	return all
}

func TestAWorkerEmitsItsHistoryOnceThroughAllItsRuns(t *testing.T) {
	s := newWorkerEnv(t)
	s.watchScript[1] = crash(3 * time.Second)
	s.At(time.Minute, s.signal(api.SignalRestart, api.Restart{Reason: "new moon"}))
	s.At(2*time.Minute, s.cancel)
	run := standalone()
	run.ContinueEvery = 2
	s.run(run)
	require.Greater(t, s.runs, 3)
	var recorded []lifecycle.Transition
	for _, transition := range s.history() {
		if !transition.IsNote() {
			recorded = append(recorded, transition)
		}
	}
	require.Equal(t, recorded, s.transitions())
}

func TestALeaseEmitsItsGrantItsRenewalAndItsEnd(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(1*time.Second, func() { s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me"}) })
	s.At(2*time.Second, func() { s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "you"}) })
	s.At(3*time.Second, func() { s.update(api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1"}) })
	s.At(4*time.Second, func() { s.update(api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.7"}) })
	s.At(5*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"}))
	s.At(6*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"}))
	s.At(7*time.Second, func() { s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 1000}) }) // expires
	s.At(time.Minute, func() { s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me"}) })
	s.At(61*time.Second, s.signal(api.SignalStop, api.Control{Reason: "enough"})) // ends with its process
	s.At(2*time.Minute, s.cancel)
	s.run(standalone())
	require.Equal(t, []string{
		"lease.granted t.0.1.1", "lease.refused busy", "lease.renewed t.0.1.1", "lease.refused t.0.1.7 lease_fenced",
		"lease.released t.0.1.1 ok", "lease.refused t.0.1.1 lease_fenced",
		"lease.granted t.0.1.2", "lease.expired t.0.1.2",
		"lease.granted t.0.2.3", "lease.released t.0.2.3 ended",
	}, s.others())
}

func TestALeaseThatOutlivesASwitchEndsOnce(t *testing.T) {
	s := newWorkerEnv(t)
	s.onDrain = func(r api.DrainRequest) (api.DrainResult, error) {
		return api.DrainResult{Drained: true, Checkin: &api.CheckinRequest{LeaseID: "t.0.1.1"}}, nil
	}
	s.At(time.Second, func() { s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: api.GatewayHolderPrefix + "h"}) })
	s.At(time.Minute, s.signal(api.SignalRestart, api.Restart{Reason: "new moon"}))
	s.At(2*time.Minute, s.cancel)
	run := standalone()
	run.Spec.Lease.TTL = spec.Duration(time.Hour)
	s.run(run)
	require.Equal(t, []string{"lease.granted t.0.1.1", "lease.released t.0.1.1 ok"}, s.others())
}
