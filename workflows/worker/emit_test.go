package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
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

// leaseEvents are those of leases in short: type, lease, and outcome or code.
func (s *workerEnv) leaseEvents() (all []string) {
	for _, e := range s.emitted {
		if data, ok := e.data.(api.LeaseEvent); ok {
			all = append(all, strings.Join(strings.Fields(e.eventType+" "+data.LeaseID+" "+data.Outcome+" "+string(data.Code)),
				" "))
		}
	}
	return all
}

// rotationEvents are those of rotations in short: type, incarnation, cause, and whether it is only observed, in place,
// or failed.
func (s *workerEnv) rotationEvents() (all []string) {
	for _, e := range s.emitted {
		if data, ok := e.data.(api.RotationEvent); ok {
			short := fmt.Sprintf("%s %d %s", e.eventType, data.Incarnation, data.Cause)
			for word, holds := range map[string]bool{" observed": data.Observed, " in place": data.InPlace,
				" failed": data.Failed != ""} {
				if holds {
					short += word
				}
			}
			all = append(all, short)
		}
	}
	return all
}

func TestAWorkerEmitsItsHistoryOnceThroughAllItsRuns(t *testing.T) {
	s := newWorkerEnv(t)
	s.watchScript[1] = crash(3 * time.Second)
	s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon"}))
	s.At(2*time.Minute, s.cancel)
	s.every = 2
	s.run(standalone())
	require.Greater(t, s.runs, 3)
	require.Equal(t, slices.DeleteFunc(s.history(), lifecycle.Transition.IsNote), s.transitions())
}

func TestALeaseEmitsItsGrantItsRenewalAndItsEnd(t *testing.T) {
	s := newWorkerEnv(t)
	s.UpdateAt(1*time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "me"})
	s.UpdateAt(2*time.Second, api.UpdateCheckout, api.CheckoutRequest{Holder: "you"})
	s.UpdateAt(3*time.Second, api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.1"})
	s.UpdateAt(4*time.Second, api.UpdateRenew, api.RenewRequest{LeaseID: "t.0.1.7"})
	s.At(5*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"}))
	s.At(6*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"}))
	s.At(7*time.Second, func() { s.Update(api.UpdateCheckout, api.CheckoutRequest{Holder: "me", TTLMS: 1000}) }) // expires
	s.UpdateAt(time.Minute, api.UpdateCheckout, api.CheckoutRequest{Holder: "me"})
	s.At(61*time.Second, s.signal(api.SignalStop, api.Control{Reason: "enough"})) // ends with its process
	s.At(2*time.Minute, s.cancel)
	s.run(standalone())
	require.Equal(t, []string{
		"lease.granted t.0.1.1", "lease.refused busy", "lease.renewed t.0.1.1", "lease.refused t.0.1.7 lease_fenced",
		"lease.released t.0.1.1 ok", "lease.refused t.0.1.1 lease_fenced",
		"lease.granted t.0.1.2", "lease.expired t.0.1.2",
		"lease.granted t.0.2.3", "lease.released t.0.2.3 ended",
	}, s.leaseEvents())
}

func TestARotationTakesOnlyLegalTransitionsAndEmitsItsSteps(t *testing.T) {
	s := newWorkerEnv(t)
	s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon", By: "me"}))
	s.At(2*time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon", InPlace: true}))
	s.At(3*time.Minute, s.cancel)
	s.run(standalone())
	require.Equal(t, []lifecycle.EventKind{
		lifecycle.Start, lifecycle.StartSucceeded,
		lifecycle.Drain, lifecycle.Exited, lifecycle.Start, lifecycle.StartSucceeded,
		lifecycle.Drain, lifecycle.Drained, lifecycle.Exited, lifecycle.Start, lifecycle.StartSucceeded,
	}, s.events()[:11])
	require.Contains(t, s.history()[2].Reason, "new moon (by me)")
	require.Equal(t, lifecycle.Stopped, s.history()[3].To)
	require.Contains(t, s.history()[3].Reason, "incarnation 2")
	require.Equal(t, []string{
		"rotation.requested 1 operator", "rotation.started 1 operator", "rotation.finished 1 operator",
		"rotation.requested 2 operator in place", "rotation.started 2 operator in place",
		"rotation.finished 2 operator in place",
	}, s.rotationEvents())
}

func TestARestartOfAnOperatorThatFailsIsNotTriedAgain(t *testing.T) {
	s := newWorkerEnv(t)
	s.failStarts(ofSuccessors)
	s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon"}))
	s.At(time.Hour, func() {
		require.Equal(t, []string{"rotation.requested 1 operator", "rotation.started 1 operator",
			"rotation.finished 1 operator failed"}, s.rotationEvents())
	})
	s.runThrough(standalone())
}
