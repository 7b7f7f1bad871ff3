package worker

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// permitTimeout is how long a worker waits for its pool's permit before it asks again.
const permitTimeout = 10 * time.Minute

// awaitStart waits until a pending worker may start: for the end of a backoff, for capacity, or for the pool's permit.
func (s *starter) awaitStart() bool {
	if s.stopIfOrdered() {
		s.tasks.wait.Reset()
		s.tasks.awaitCapacity.Reset()
		return true
	}
	if r := s.takeRequest(api.SignalRestart); r != nil {
		s.Cause, s.StartPermitted = r.Cause, true // a restart waits for nothing
		s.Failures = 0
		s.beginIncarnation(r.Reason)
		return true
	}
	if s.Wait.Pool {
		return s.pollPermit()
	}
	if s.Wait.Capacity {
		return s.pollCapacity()
	}
	if s.tasks.wait.Take() || !s.Now().Before(s.Wait.Until) {
		s.beginIncarnation("backoff over")
		return true
	}
	if !s.tasks.wait.Running() {
		s.tasks.wait.Start(s.Loop, s.Wait.Until.Sub(s.Now()), s.Wait.Reason)
	}
	return false
}

// needsPermit reports whether the pool has to permit each start.
func (s *starter) needsPermit() bool {
	return !s.Standalone && s.TrialPause == 0 && (s.StartsPaused != "" || s.Spec.Start.RatePerSecond > 0)
}

// passBreaker permits the start of a restart, unless start.rate_per_second limits it.
func (s *starter) passBreaker() {
	s.StartPermitted = s.StartPermitted || s.Spec.Start.RatePerSecond == 0
}

// awaitPermit makes the worker pending until the pool permits the start.
func (s *starter) awaitPermit(reason string) {
	why := s.StartsPaused
	if why == "" {
		why = fmt.Sprintf("the pool starts at most %g processes per second (start.rate_per_second)",
			s.Spec.Start.RatePerSecond)
	}
	s.Wait = Wait{Pool: true, For: reason, Reason: why}
	workflow.GetLogger(s.Ctx).Info("start held", "worker", s.name(), "start", reason, "reason", why)
	if s.Machine.State != lifecycle.Pending {
		s.skipUsedNumbers()
		s.transition(lifecycle.Hold, why)
	}
}

func (s *starter) pollPermit() bool {
	if s.StartPermitted || !s.needsPermit() {
		s.StartPermitted = true
		s.beginIncarnation(s.Wait.For)
		return true
	}
	if s.tasks.wait.Take() {
		s.Wait.Asked = false
	}
	if !s.Wait.Asked {
		s.Wait.Asked = true
		s.reporter.signalPool(api.SignalStartRequested, api.StartRequested{Slot: s.Slot, Incarnation: s.Machine.Incarnation})
	}
	if !s.tasks.wait.Running() {
		s.tasks.wait.Start(s.Loop, permitTimeout, "before the pool is asked again")
	}
	return false
}

func (s *starter) pollCapacity() bool {
	if r := s.tasks.awaitCapacity.Take(); r != nil && r.Err == nil {
		s.beginIncarnation("host " + r.Value.Host + " has capacity")
		return true
	}
	if !s.tasks.awaitCapacity.Running() {
		s.activities.awaitCapacity()
	}
	return false
}

// startsPaused takes from the pool whether it has to permit each start.
func (s *starter) startsPaused(h api.StartsPaused) { s.StartsPaused, s.TrialPause = h.Reason, 0 }

// startPermitted takes the pool's permit.
func (s *starter) startPermitted(r api.StartPermitted) {
	if s.Wait.Pool && s.Machine.State == lifecycle.Pending && r.Incarnation == s.Machine.Incarnation {
		s.StartPermitted, s.TrialPause = true, r.Pause.D()
	}
}
