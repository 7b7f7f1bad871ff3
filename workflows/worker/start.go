package worker

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// starter starts incarnations.
type starter struct {
	*worker
	// announcing says that the host reports the current start to the pool, and announced that it has reported the process
	// as ready.
	announcing, announced bool
}

// startFirst leaves created: it starts the first incarnation, unless the worker has to end.
func (s *starter) startFirst() bool {
	if s.stopIfOrdered() {
		return true
	}
	s.beginIncarnation("first start of this worker")
	return true
}

// beginIncarnation moves to starting under the next incarnation number; or to pending if the pool has to permit the
// start.
func (s *starter) beginIncarnation(reason string) {
	s.tasks.wait.Reset()
	s.tasks.awaitCapacity.Reset()
	if s.needsPermit() && !s.StartPermitted {
		s.awaitPermit(reason)
		return
	}
	s.StartPermitted, s.Begun = false, s.LastRestart
	gateway := s.Process.Endpoint // calls can wait there
	if s.Cause == api.CauseHostLost {
		gateway = ""
	}
	s.rotator.countReplacement()
	if s.NextSpec != nil {
		s.Spec, s.SpecVersion, s.NextSpec = s.NextSpec.Spec, s.NextSpec.Version, nil
	}
	s.Process = RunningProcess{Endpoint: gateway}
	s.Intent, s.IntentReason, s.Resting, s.GaveUp, s.Wait = IntentRecover, "", false, false, Wait{}
	s.ProbeFailures, s.LeaseErrors, s.DegradeReason, s.Sample, s.Assessment = 0, 0, "", nil, nil
	event := lifecycle.Start
	if s.Machine.State == lifecycle.Pending {
		event = lifecycle.Release
	} else {
		s.skipUsedNumbers()
	}
	s.transition(event, reason)
	s.monitor.dropEvents()
}

// skipUsedNumbers passes over the incarnation numbers of successors that never took over.
func (s *starter) skipUsedNumbers() {
	s.Machine.Incarnation = max(s.Machine.Incarnation, s.HighestIncarnation)
}

// start waits until the process is spawned, has answered its handshake and has finished its warm-up.
func (s *starter) start() bool {
	if s.stopIfOrdered() {
		return true
	}
	if r := s.tasks.start.Take(); r != nil {
		s.announced = r.Err == nil && r.Value.Announced
		s.announcing = false
		s.countStart(r.Err)
		s.startEnded(r)
		return true
	}
	if r := s.takeRequest(api.SignalRestart); r != nil {
		s.Failures = 0
		s.passBreaker()
		s.endIncarnation(r.Cause, IntentReplace, r.Reason)
		s.transition(lifecycle.Stop, r.Reason)
		return true
	}
	if !s.tasks.start.Running() {
		s.activities.startProcess()
	}
	return false
}

func (s *starter) startEnded(r *loop.Result[api.StartResult]) {
	switch {
	case r.Err == nil:
		s.started(r.Value)
	case failure.NotStarted(r.Err):
		needed, advice := "capacity", "start an agent with"
		if s.Spec.Pool.Kind == spec.KindFunction { // the roster keeps the end of a long reason
			needed = fmt.Sprintf("the function %q and capacity", s.Spec.Pool.Function)
			advice = "start an agent whose program registers the function with worker.Register and that has"
		}
		advice += fmt.Sprintf(" --labels %s, or raise its --capacity", s.Spec.Pool.Placement)
		reason := fmt.Sprintf("no agent with %s took the start from %s within %s", needed, api.StartQueue(s.Spec.Pool),
			placementTimeout)
		s.transition(lifecycle.StartFailed, reason)
		s.Wait = Wait{Capacity: true, Reason: reason + "; " + advice}
	case failure.NoResources(r.Err): // no failure of the program
		s.transition(lifecycle.StartFailed, failure.Message(r.Err))
		s.Wait = Wait{Capacity: true, Reason: failure.Message(r.Err)}
	case failure.TimedOut(r.Err):
		const reason = "host lost during the start"
		s.endIncarnation(api.CauseHostLost, IntentReplace, reason)
		s.transition(lifecycle.StartFailed, reason)
	default:
		cause, intent := api.CauseStartFailed, IntentRecover
		newest, superseded := failure.Superseded(r.Err)
		if superseded {
			cause, intent = api.CauseSuperseded, IntentReplace
		}
		s.endIncarnation(cause, intent, failure.Message(r.Err))
		s.transition(lifecycle.StartFailed, failure.Message(r.Err))
		// no number is used twice, not even by another pool of this name
		s.Machine.Incarnation = max(s.Machine.Incarnation, newest)
	}
}

// started moves to ready.
func (s *starter) started(r api.StartResult) {
	s.setProcess(r)
	s.apply(lifecycle.Event{
		Kind:     lifecycle.StartSucceeded,
		Reason:   r.Reason(),
		Metadata: map[string]string{"host": r.Host, "pid": fmt.Sprint(r.PID)},
	})
	if limit := s.Spec.Rotation.MaxMemory; limit > 0 && r.Sample != nil && r.Rules.MaxMemoryBytes == 0 {
		workflow.GetLogger(s.Ctx).Warn("process exceeds rotation.max_memory from its start, so the limit is ignored; "+
			"raise it", "worker", s.name(), "bytes", r.Sample.MemoryBytes, "max_memory", limit)
	}
	s.NextCheckpoint = s.Now().Add(s.Spec.Health.Checkpoint.D())
	// an early checkpoint confirms that the worker has recovered; the worker reports it to the pool then
	if s.Failures > 0 {
		s.NextCheckpoint = s.Now().Add(min(policy.StableAfter, s.Spec.Health.Checkpoint.D()))
	} else { // it serves the first lease, and as the checkpoint's timer until it fires
		s.leases.armTimer(s.Spec.Lease.TTL.D())
	}
}

// counts reports whether a start that ended so counts: a host has taken it, and could carry it out.
func counts(err error) bool {
	_, superseded := failure.Superseded(err)
	return !superseded && !failure.NotStarted(err) && !failure.NoResources(err) && !temporal.IsCanceledError(err)
}

// countStart counts the end of a start, and the calls of a process that ended in its probation.
func (s *starter) countStart(err error) {
	if !counts(err) {
		return
	}
	s.Starts++
	if err != nil {
		s.StartsFailed++
		s.leases.addUsage(failure.Served(err))
	}
}

func (s *starter) setProcess(r api.StartResult) {
	s.Process = RunningProcess{
		Host: r.Host, Epoch: r.Epoch, PID: r.PID, Endpoint: r.Endpoint, Address: r.Address, Limits: r.Limits,
		Rules: r.Rules,
	}
	s.Observing = observing{Incarnation: s.Machine.Incarnation, Probe: true, Rules: r.Rules}
	s.monitor.measured(r.Sample, nil, nil)
}
