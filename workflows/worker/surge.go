package worker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// With rotation.surge a worker has two processes for a while: the incarnation that serves, and its successor, which
// starts beside it. When the successor is ready, the worker switches to it in one workflow task, so that no client sees
// the worker out of service. The old process drains and stops beside the new one. The machine has one incarnation at a
// time; the number of the successor becomes the worker's incarnation, and its fencing epoch, with the switch.

// successor is the incarnation that is about to replace the current one.
type successor struct {
	Incarnation int64 `json:"incarnation"`
	// Ready is set after handshake and warm-up. It may wait then: for the end of a client's lease on the current
	// incarnation, or of the process.
	Ready  *api.StartResult `json:"ready,omitempty"`
	failed error            // why it could not be started
	cancel func()           // of the start, while it is under way
}

// drainingIncarnation is an incarnation that drains beside the current one.
type drainingIncarnation struct {
	Incarnation int64      `json:"incarnation"`
	Host        string     `json:"host"`
	Epoch       int64      `json:"epoch,omitempty"` // of the agent that started it
	PID         int        `json:"pid"`
	Lease       *api.Lease `json:"lease,omitempty"` // a client's that was not returned in time
	Reason      string     `json:"reason"`
	Reported    api.Usage  `json:"reported,omitzero"` // see usage.go
	Observed    api.Usage  `json:"observed,omitzero"`
	// Until is when its drain times out.
	Until time.Time `json:"until,omitzero"`
	// Disruption says that its end is the end of the worker's disruption.
	Disruption bool `json:"disruption,omitempty"`
	cancel     workflow.CancelFunc
}

// surge replaces an incarnation by a successor that starts beside it.
type surge struct {
	*worker
	// switching is set while the machine leaves an incarnation whose process still runs.
	switching bool
	// claiming says that a successor is being claimed, perhaps one that has taken over since: the end of the run would
	// lose that.
	claiming bool
}

// startSuccessor starts the next incarnation beside the current one.
func (s *surge) startSuccessor() {
	s.HighestIncarnation = max(s.HighestIncarnation, s.Machine.Incarnation) + 1
	next := &successor{Incarnation: s.HighestIncarnation}
	s.Successor = next
	ctx, cancel := workflow.WithCancel(s.Ctx)
	next.cancel = cancel
	future := s.activities.startSuccessor(ctx, next.Incarnation, s.rotator.nextSpec())
	workflow.Go(s.Ctx, func(ctx workflow.Context) {
		var ready api.StartResult
		err := future.Get(ctx, &ready)
		s.starter.countStart(err)
		next.cancel = nil
		cancel()
		switch {
		case s.Successor != next:
			if err == nil { // cancelled too late
				s.stopDrained(ctx, drainingIncarnation{Incarnation: next.Incarnation, Host: ready.Host, Epoch: ready.Epoch,
					PID: ready.PID, Reason: "no longer needed"})
			}
			s.removeDrained(next.Incarnation)
		case err == nil:
			next.Ready = &ready
		default:
			next.failed = err
		}
		s.WakeUp()
	})
}

// attemptSwitch switches to the successor if it is ready, or handles its failure. It reports whether anything changed.
func (s *surge) attemptSwitch() bool {
	if s.isReady() {
		s.transition(lifecycle.Drain, s.Rotation.Reason)
		if s.Lease == nil {
			s.switchOver()
		} // otherwise a client's calls in flight finish first
		return true
	}
	err := s.Successor.failed
	if err == nil {
		return false
	}
	s.Successor = nil
	if newest, superseded := failure.Superseded(err); superseded {
		s.HighestIncarnation = max(s.HighestIncarnation, newest)
		return true
	}
	rotation := s.Rotation
	if failure.NoResources(err) && !rotation.refused {
		rotation.refused = true
		return true
	}
	if failure.NotStarted(err) || failure.NoResources(err) {
		rotation.InPlace = true
		rotation.Reason += " (no host has capacity for a second process, so the old one stops first)"
		return true
	}
	s.successorFailed(failure.Message(err))
	return true
}

// successorFailed schedules the next attempt of the rotation, or abandons it.
func (s *surge) successorFailed(reason string) {
	rotation := s.Rotation
	rotation.Attempts++
	rotation.Failed = reason
	recovery := policy.Recovery(s.rotator.nextSpec().Recovery)
	if limit := recovery.MaxConsecutiveFailures; limit > 0 && rotation.Attempts >= limit {
		s.rotator.abandonRotation(fmt.Sprintf("the next process failed to start %d times in a row; last error: %s",
			rotation.Attempts, reason))
		return
	}
	if rotation.Attempts == 1 { // records of all attempts would push everything else out of the history
		s.record(lifecycle.RotationFailed, "The next process failed to start, retrying: "+reason)
	}
	if rotation.Asked { // other workers may rotate while this one waits
		s.rotator.endDisruption(rotation.Incarnation, false, reason)
		rotation.Granted, rotation.Asked = false, false
	}
	recovery.MaxConsecutiveFailures = 0 // it is not reached, so there is a wait
	rotation.RetryAt = s.Now().Add(recovery.Next(rotation.Attempts+1, true, reason, s.backoffRandom()).Delay)
}

// isReady reports whether a successor can take over.
func (s *surge) isReady() bool { return s.Successor != nil && s.Successor.Ready != nil }

// switchOver makes the successor, which is ready, the current incarnation, in one workflow task: the machine goes from
// draining through the end of the old incarnation to ready. The old process drains beside the new one.
func (s *surge) switchOver() {
	next := s.Successor
	old := drainingIncarnation{
		Incarnation: s.Machine.Incarnation, Host: s.Process.Host, Epoch: s.Process.Epoch, PID: s.Process.PID, Lease: s.Lease,
		Reason:   s.Rotation.Reason,
		Reported: s.Process.Reported, Observed: s.Process.Observed, Disruption: true,
	}
	s.Process.Observed = api.Usage{} // the process runs on; its host reports its usage at the end
	s.switching = true               // the old process is counted when it has ended
	s.processExited(&lifecycle.Exit{Interrupted: true}, fmt.Sprintf(
		"replaced by incarnation %d, ready on host %s; %s finishes its calls and is stopped", next.Incarnation,
		next.Ready.Host, api.ProcessText(old.PID)))
	s.switching = false
	s.activate()
	s.startDrain(old)
}

// activate makes the successor, which is ready, the current incarnation, after the previous one has ended.
func (s *surge) activate() {
	next, rotation := s.Successor, s.Rotation
	s.Successor = nil
	s.Machine.Incarnation, s.HighestIncarnation = next.Incarnation-1, 0
	s.Cause, s.StartPermitted = rotation.Cause, true
	s.starter.beginIncarnation(rotation.Reason)
	s.starter.started(*next.Ready)
}

// startDrain drains and stops an incarnation beside the current one.
func (s *surge) startDrain(d drainingIncarnation) {
	d.Until = s.Now().Add(s.Spec.Rotation.DrainTimeout.D())
	s.Draining = append(s.Draining, d)
	s.runDrain(d)
}

func (s *surge) runDrain(d drainingIncarnation) {
	ctx, cancel := workflow.WithCancel(s.Ctx)
	s.draining(d.Incarnation).cancel = cancel
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer cancel() // releases the context, which the parent would retain until the run ends
		var result api.DrainResult
		if err := s.activities.drainIncarnation(ctx, d).Get(ctx, &result); err == nil && result.CallsCut > 0 {
			s.rotator.recordCutCalls(result.CallsCut)
			if s.LastRotation != nil && s.LastRotation.Incarnation == d.Incarnation {
				s.LastRotation.CallsCut = result.CallsCut
			}
			workflow.GetLogger(ctx).Warn("calls cut at the drain timeout", "worker", s.name(), "incarnation", d.Incarnation,
				"calls", result.CallsCut, "drain_timeout", s.Spec.Rotation.DrainTimeout)
		}
		if ctx.Err() == nil {
			s.stopDrained(ctx, d)
		}
		s.removeDrained(d.Incarnation)
		if d.Disruption {
			s.rotator.endDisruption(d.Incarnation, false, "")
		}
		s.WakeUp()
	})
}

// stopDrained stops a drained process. If its host does not answer, its incarnation number fences it, and the host's
// agent kills it.
func (s *surge) stopDrained(ctx workflow.Context, d drainingIncarnation) {
	var result api.StopResult
	if err := s.activities.stopIncarnation(ctx, d).Get(ctx, &result); err != nil {
		workflow.GetLogger(ctx).Warn("drained incarnation not stopped", "worker", s.name(), "incarnation", d.Incarnation,
			"error", err)
		return
	}
	outcome := lifecycle.Outcome(result.Exit, true)
	s.countEnd(outcome)
	if outcome == lifecycle.Killed && !result.Exit.ByAgent {
		text := api.ProcessText(d.PID)
		s.record(lifecycle.ProcessKilled,
			fmt.Sprintf("%s of incarnation %d did not stop within pool.stop_grace (%s) and was killed.",
				strings.ToUpper(text[:1])+text[1:], d.Incarnation, s.Spec.Pool.StopGrace))
	}
	if draining := s.draining(d.Incarnation); draining != nil && result.Usage != nil {
		draining.Observed = *result.Usage
	}
}

// draining is an incarnation that drains beside the current one, or nil.
func (s *surge) draining(incarnation int64) *drainingIncarnation {
	i := slices.IndexFunc(s.Draining, func(d drainingIncarnation) bool { return d.Incarnation == incarnation })
	if i < 0 {
		return nil
	}
	return &s.Draining[i]
}

// abandonDrains ends the drains of processes whose agent has ended, which did so with it, or which the next agent ends
// because nobody claims them. Nothing answers for them: the activity under way would time out, and not even that once
// the workflow was reset, for the server then forgets the timeouts of an activity that no agent has taken.
func (s *surge) abandonDrains(e api.EpochEnded) {
	for i := range s.Draining {
		d := &s.Draining[i]
		if d.Host == e.Host && d.Epoch <= e.Epoch && d.cancel != nil {
			s.warn("a draining process is lost", e.Reason)
			if u := e.UsageOf(d.Incarnation); u != nil && u.Requests > d.Observed.Requests {
				d.Observed = *u
			}
			s.CountCancelled()
			d.cancel()
		}
	}
}

// removeDrained forgets a draining incarnation, and counts what no checkin has reported of it.
func (s *surge) removeDrained(incarnation int64) {
	if d := s.draining(incarnation); d != nil {
		s.leases.addUsage(unreported(d.Observed, d.Reported))
	}
	s.Draining = slices.DeleteFunc(s.Draining, func(d drainingIncarnation) bool { return d.Incarnation == incarnation })
}

// checkinDraining takes the checkin of a lease on a draining incarnation, and reports whether it was one.
func (s *surge) checkinDraining(r api.CheckinRequest) bool {
	d := s.drainingLease(r.LeaseID)
	if d == nil {
		return false
	}
	s.leases.emitRelease(d.Lease, r)
	d.Lease = nil
	d.Reported = sum(d.Reported, r.Usage)
	s.leases.countUsage(r.Usage, d.Incarnation)
	return true
}

// drainingLease is the draining incarnation of a lease, whose calls may finish; nil if there is none.
func (s *surge) drainingLease(id string) *drainingIncarnation {
	for i := range s.Draining {
		if d := &s.Draining[i]; d.Lease != nil && d.Lease.ID == id {
			return d
		}
	}
	return nil
}

// drainingNumbers are the numbers of the draining incarnations.
func (s *surge) drainingNumbers() []int64 {
	var numbers []int64
	for _, d := range s.Draining {
		numbers = append(numbers, d.Incarnation)
	}
	return numbers
}

// agentEnded drops a successor that is ready, if its agent has ended and no other one has taken it over. A worker that
// waited for the end of a client's lease, or whose process is stopping because calls under it were cut, then starts the
// next process after that one.
func (s *surge) agentEnded(e api.EpochEnded) {
	next := s.Successor
	if !s.isReady() || next.Ready.Host != e.Host || next.Ready.Epoch > e.Epoch {
		return
	}
	if e.NextAgent != nil && slices.Contains(e.Kept, next.Incarnation) {
		s.adopt(next.Ready, *e.NextAgent)
		return
	}
	s.warn("the next process is lost", e.Reason)
	s.Successor = nil
	if s.Machine.State == lifecycle.Draining || s.Machine.State == lifecycle.Stopping && s.Cause == "" {
		s.Rotation.InPlace = true
		s.endIncarnation(s.Rotation.Cause, IntentReplace, s.Rotation.Reason)
	}
}

// adopt continues with a successor, which is ready, of an agent that has ended. It claims the process at once: it may
// wait longer for the end of a client's lease than the next agent does for a claim.
func (s *surge) adopt(ready *api.StartResult, next api.NextAgent) {
	ready.Epoch = next.Epoch
	ready.Endpoint = cmp.Or(next.Endpoint, ready.Endpoint)
	claimed, claim := s.Successor.Incarnation, s.activities.claimSuccessor(*ready)
	s.claiming = true
	s.OnFuture(claim, func(f workflow.Future) {
		s.claiming = false
		if err := f.Get(s.Ctx, nil); err != nil { // the end of its process or of its agent is reported
			s.warn("the next process is not claimed", failure.Message(err))
			// it has taken over: the monitor claims it, as any process that the next agent has
			if s.Machine.Incarnation == claimed {
				s.Observing = observing{}
			}
		}
	})
}

// cancelSuccessor ends the successor, if there is one.
func (s *surge) cancelSuccessor(reason string) {
	next := s.Successor
	if next == nil {
		return
	}
	s.Successor = nil
	switch {
	case next.Ready != nil:
		s.startDrain(drainingIncarnation{Incarnation: next.Incarnation, Host: next.Ready.Host, Epoch: next.Ready.Epoch,
			PID: next.Ready.PID, Reason: reason})
	case next.cancel != nil:
		s.Draining = append(s.Draining, drainingIncarnation{Incarnation: next.Incarnation, Reason: reason})
		s.CountCancelled()
		next.cancel()
	}
}

// carry readies the state for the next run. It gives up the start of a successor that is not ready; the next run starts
// another one.
func (s *surge) carry() {
	if !s.isReady() {
		s.Successor = nil
	}
	// its start was cancelled
	s.Draining = slices.DeleteFunc(s.Draining, func(d drainingIncarnation) bool { return d.Host == "" })
}

// resume continues the drains of the previous run.
func (s *surge) resume() {
	for _, d := range s.Draining {
		s.runDrain(d)
	}
}
