package worker

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// A suspension takes effect at once: the worker grants and renews no lease, and its host starts no further call of the
// pool. Those in flight may finish, and the holder of a lease may return it, until rotation.drain_timeout is over; then
// the host cuts the calls and fences the lease. The worker is suspended when no lease and no call is left. The host is
// notified of a resumption before the worker is ready again.

// SuspendState is a suspension that is requested or in effect.
type SuspendState struct {
	// SuspendWanted says that a suspension has been requested and is not complete.
	SuspendWanted bool   `json:"suspend_wanted,omitempty"`
	SuspendReason string `json:"suspend_reason,omitempty"`
	// SuspendUntil is when the lease is fenced; zero before the request is carried out.
	SuspendUntil time.Time `json:"suspend_until,omitzero"`
	// SuspendGeneration counts suspensions and resumptions, so that a host carries none out that a later one has
	// replaced.
	SuspendGeneration int64 `json:"suspend_generation,omitempty"`
	// SuspendCounted is the generation of the newest suspension whose cut calls are counted.
	SuspendCounted int64 `json:"suspend_counted,omitempty"`
	// Resuming says that the host must be notified that a suspension has ended or is withdrawn, for ResumeReason.
	Resuming     bool   `json:"resuming,omitempty"`
	ResumeReason string `json:"resume_reason,omitempty"`
}

// suspender suspends and resumes a worker with a live process.
type suspender struct {
	*worker
	// Of the Suspend under way: its lease and its generation.
	asked           string
	askedGeneration int64
}

// request takes the order to suspend.
func (s *suspender) request(reason string) {
	s.SuspendWanted, s.SuspendReason = true, reason
	s.takeRequest(api.SignalResume) // the later request counts
}

// drop clears what was requested of a process that is going or gone.
func (s *suspender) drop() {
	s.withdraw()
	s.takeRequest(api.SignalResume)
	s.Resuming, s.ResumeReason = false, ""
}

// withdraw clears the suspension that is wanted.
func (s *suspender) withdraw() {
	s.SuspendWanted, s.SuspendReason, s.SuspendUntil = false, "", time.Time{}
}

// reconcile carries out what was requested, and takes the host's answers. It reports whether anything changed.
func (s *suspender) reconcile() bool {
	if r := s.takeRequest(api.SignalResume); r != nil {
		s.beginResume(r.Reason)
		return true
	}
	if r := s.tasks.suspend.Take(); r != nil {
		s.suspendEnded(r)
		return true
	}
	if r := s.tasks.resume.Take(); r != nil {
		s.resumeEnded(r)
		return true
	}
	switch {
	case s.Resuming:
		if !s.tasks.resume.Running() {
			s.activities.resume(api.ResumeRequest{
				Process: s.process(), Generation: s.SuspendGeneration, Suspended: s.Machine.State == lifecycle.Suspended,
				HookTimeout: s.Spec.Health.Timeout,
			})
		}
	case !s.SuspendWanted:
	case s.Machine.State == lifecycle.Suspended:
		s.drop()
		s.refuse("suspend: the worker is already suspended")
		return true
	case !s.leases.isResetting():
		s.askHost()
	}
	return false
}

// askHost has the host take the process out of service. A lease that its holder returns meanwhile shortens that.
func (s *suspender) askHost() {
	if s.SuspendUntil.IsZero() {
		s.SuspendGeneration++
		s.SuspendUntil = s.Now().Add(s.Spec.Rotation.DrainTimeout.D())
		s.rotator.yieldDisruption()
		s.warn("taking worker out of service to suspend it", s.SuspendReason)
	}
	lease := ""
	if s.Lease != nil {
		lease = s.Lease.ID
	}
	if s.tasks.suspend.Running() && (s.asked == lease || lease == "" && !s.awaitsReturn()) {
		return
	}
	s.tasks.suspend.Cancel()
	s.asked, s.askedGeneration = lease, s.SuspendGeneration
	s.activities.suspend(api.SuspendRequest{
		Process: s.process(), Generation: s.SuspendGeneration, LeaseID: lease,
		Timeout: spec.Duration(max(0, s.SuspendUntil.Sub(s.Now()))), HookTimeout: s.Spec.Health.Timeout,
		Reason: s.SuspendReason,
	})
}

// awaitsReturn reports whether the Suspend under way waits until a client returns its lease. Any other fences the
// lease.
func (s *suspender) awaitsReturn() bool { return s.asked != "" && s.Now().Before(s.SuspendUntil) }

// suspendEnded takes the host's answer: the process is out of service, unless the suspension was withdrawn before.
func (s *suspender) suspendEnded(r *loop.Result[api.SuspendResult]) {
	switch {
	case s.monitor.agentLost(r.Err):
		return
	case r.Err != nil:
		s.warn("the host could not take the process out of service; asking again", failure.Message(r.Err))
		return
	case r.Value.Withdrawn:
		return
	}
	s.takeFenced(r.Value.FencedLease, s.askedGeneration, s.asked)
	if s.SuspendWanted && s.Lease == nil && !s.isReplaced() &&
		(s.Machine.State == lifecycle.Ready || s.Machine.State == lifecycle.Degraded) {
		s.complete(&r.Value)
	}
}

// isReplaced reports whether the Suspend that has ended is of an earlier generation than the newest order: its process
// is in service again, or will be.
func (s *suspender) isReplaced() bool {
	return s.askedGeneration != s.SuspendGeneration
}

// takeFenced takes the lease that the host has ended for the suspension of a generation. It may learn of it twice: by
// the suspension, and by the resumption that withdraws it.
func (s *suspender) takeFenced(r api.FencedLease, generation int64, lease string) {
	if generation > s.SuspendCounted {
		s.SuspendCounted = generation
		s.rotator.recordCutCalls(r.CallsCut)
	}
	if s.Lease != nil && s.Lease.ID == lease {
		s.endLease(r)
	}
}

// endLease ends the lease that the host has fenced.
func (s *suspender) endLease(r api.FencedLease) {
	usage := api.Usage{}
	if r.Checkin != nil {
		usage = r.Checkin.Usage
	}
	s.leases.fence(fmt.Sprintf("lease %s of %q fenced to suspend the worker: not returned within %s "+
		"(rotation.drain_timeout); calls cut: %d",
		s.Lease.ID, s.Lease.Holder, s.Spec.Rotation.DrainTimeout, r.CallsCut), usage)
}

// complete records that the worker is suspended.
func (s *suspender) complete(r *api.SuspendResult) {
	reason := s.SuspendReason
	s.drop()
	s.warn("suspending worker", reason)
	event := lifecycle.Event{Kind: lifecycle.Suspend, Reason: reason}
	if r.CallsCut > 0 || r.Frozen {
		event.Metadata = map[string]string{"calls_cut": strconv.Itoa(r.CallsCut), "frozen": strconv.FormatBool(r.Frozen)}
	}
	s.apply(event)
	s.recordProblem(r.Problem)
	s.tasks.checkpoint.Cancel()
}

// recordProblem records what did not work of a suspension or its end.
func (s *suspender) recordProblem(problem string) {
	if problem != "" {
		problem = display.Shorten(problem)
		s.record(lifecycle.HookFailed, problem)
		s.warn("a part of the suspension failed", problem)
	}
}

// beginResume withdraws a suspension that is not complete, or ends the one in effect.
func (s *suspender) beginResume(reason string) {
	suspended := s.Machine.State == lifecycle.Suspended
	switch {
	case !suspended && !s.SuspendWanted:
		s.drop()
		s.refuse("resume: the worker is not suspended")
	case s.Resuming: // it withdraws only a suspension that was requested since
		s.withdraw()
	default:
		ordered := suspended || !s.SuspendUntil.IsZero()
		s.drop()
		if ordered { // at the host
			s.SuspendGeneration++
			s.Resuming, s.ResumeReason = true, reason
		}
		if s.Lease != nil { // which could not be renewed
			if until := s.Now().Add(s.Lease.TTL()); until.After(s.Lease.ExpiresAt) {
				s.Lease.ExpiresAt = until
			}
		}
	}
}

// resumeEnded takes the host's answer: calls may start on the process again.
func (s *suspender) resumeEnded(r *loop.Result[api.ResumeResult]) {
	switch {
	case s.monitor.agentLost(r.Err):
		return
	case r.Err != nil:
		s.warn("the host could not resume the process; asking again", failure.Message(r.Err))
		return
	}
	reason := s.ResumeReason
	s.Resuming, s.ResumeReason = false, ""
	if r.Value.LeaseID != "" {
		s.takeFenced(r.Value.FencedLease, s.SuspendGeneration-1, r.Value.LeaseID)
	}
	if s.Machine.State == lifecycle.Suspended {
		s.transition(lifecycle.Resume, reason)
		s.NextCheckpoint = s.Now() // probe first: nothing probed the process while it was suspended
	}
	s.recordProblem(r.Value.Problem)
}
