package worker

import (
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// monitor takes what the host observes of the process: exits, probes, samples and limits.
type monitor struct {
	*worker
	watching api.WatchRequest // of the current Watch
}

// ensureWatch runs one Watch that observes what the current state needs.
func (m *monitor) ensureWatch() bool {
	wanted := api.WatchRequest{
		Process: m.process(), Health: m.Spec.Health, Probe: m.Machine.State != lifecycle.Suspended, Rules: m.rotator.watchRules(),
		Replaced: api.Replaced{Rotations: m.Counters.RotationsByReason, Restarts: m.Counters.RestartsByReason},
	}
	if m.Machine.State == lifecycle.Degraded {
		wanted.Failures = m.ProbeFailures + m.LeaseErrors
	}
	if !m.tasks.watch.Running() || !sameWatch(m.watching, wanted) {
		m.tasks.watch.Cancel()
		m.watching = wanted
		m.activities.watch(wanted)
	}
	return false
}

func sameWatch(a, b api.WatchRequest) bool {
	return a.Process == b.Process && a.Probe == b.Probe && a.Failures == b.Failures && a.Rules == b.Rules
}

func (m *monitor) watchEnded(r *loop.Result[api.WatchResult]) {
	switch {
	case r.Err != nil && failure.NotStarted(r.Err):
		m.hostLost(r.Err)
		return
	case r.Err != nil: // a timeout proves nothing, the server may have been down; the next Watch shows whether the host is lost
		m.setHeartbeatUsage(r.Err)
		return
	}
	result := r.Value
	m.setSample(result.Sample)
	m.setAssessment(result.Assessment)
	m.setObservedUsage(result.Usage)
	switch result.Event {
	case api.WatchExited:
		m.processExited(result.Exit, result.Reason)
	case api.WatchUnknown:
		m.Cause = api.CauseHostLost
		m.warn("process lost", result.Reason)
		m.setIntent(IntentReplace, result.Reason)
		m.processExited(&lifecycle.Exit{Error: result.Reason}, result.Reason)
	case api.WatchShutdown:
		m.rotator.cancelRotation()
		m.Cause = api.CauseHostLost
		m.warn("moving worker to another host", result.Reason)
		m.setIntent(IntentReplace, result.Reason)
		m.transition(lifecycle.Drain, result.Reason)
	case api.WatchProbeFailed:
		m.probeFailed(result.Reason)
	case api.WatchProbePassed:
		m.probePassed()
	case api.WatchReplace:
		m.rotator.want(result.Cause, result.Reason)
	}
}

// hostLost ends the incarnation: its host takes no work. Its number fences the process, should it still run.
func (m *monitor) hostLost(err error) {
	reason := fmt.Sprintf("host %s lost: no agent took work from %s within %s", m.Process.Host, api.HostQueue(m.Process.Host), loop.HostTimeout)
	m.Cause = api.CauseHostLost
	m.warn("host lost", reason)
	m.setIntent(IntentReplace, reason)
	m.processExited(&lifecycle.Exit{Error: "host lost: " + failure.Message(err)}, reason)
}

// probeEnded takes the result of a health checkpoint.
func (m *monitor) probeEnded(r api.ProbeResult) {
	m.setSample(r.Sample)
	m.setAssessment(r.Assessment)
	switch {
	case r.ProcessEnded:
		m.setObservedUsage(r.Usage)
		exit := r.Exit
		if exit == nil {
			exit = &lifecycle.Exit{Error: r.Reason}
		}
		m.processExited(exit, r.Reason)
	case r.Healthy:
		m.probePassed()
	default:
		m.probeFailed(r.Reason)
	}
}

func (m *monitor) probeFailed(reason string) {
	m.ProbeFailures++
	m.Machine = lifecycle.WithHealth(m.Machine, lifecycle.Unhealthy, m.Now())
	limit := m.Spec.Health.MaxFailures
	counted := fmt.Sprintf("%s (failure %d of %d)", reason, m.ProbeFailures, limit)
	m.warn("health check failed", counted)
	if m.Machine.State == lifecycle.Ready {
		m.transition(lifecycle.ProbeFailed, counted)
	}
	if m.ProbeFailures >= limit && m.Machine.State != lifecycle.Suspended {
		m.Cause = api.CauseUnhealthy
		m.transition(lifecycle.Unhealthy, counted)
	}
}

func (m *monitor) probePassed() {
	m.ProbeFailures = 0
	m.Machine = lifecycle.WithHealth(m.Machine, lifecycle.Healthy, m.Now())
	if m.Machine.State == lifecycle.Degraded && !m.leases.isResetting() {
		m.transition(lifecycle.ProbePassed, "probe passed")
	}
}

func (m *monitor) setSample(s *api.Sample) {
	if s == nil {
		return
	}
	m.Sample = s
	m.Counters.PeakMemoryBytes = max(m.Counters.PeakMemoryBytes, s.RSSBytes)
}

func (m *monitor) setAssessment(a *api.Assessment) {
	if a != nil {
		m.Assessment = a
	}
}

// limitsApplied takes the new limits of the process.
func (m *monitor) limitsApplied(l api.LimitsApplied) {
	if l.Incarnation != m.Machine.Incarnation || !m.Machine.State.Live() {
		return
	}
	l.At = m.Now()
	m.Process.LimitsApplied = &l
	if l.Limits != nil {
		m.Process.Limits = l.Limits
	}
	m.record(lifecycle.LimitsApplied, l.Reason)
	m.warn("process has new limits", l.Reason)
}
