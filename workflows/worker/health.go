package worker

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// monitor takes what the host observes of the process: exits, probes, samples and limits.
type monitor struct {
	*worker
	setting observing // what the Watch under way sets
}

// ensureWatch has the host observe what the current state needs. The start has set that for a process in good health.
func (m *monitor) ensureWatch() bool {
	wanted := observing{Incarnation: m.Machine.Incarnation, Probe: m.Machine.State != lifecycle.Suspended,
		Rules: m.rotator.watchRules()}
	if m.Machine.State == lifecycle.Degraded {
		wanted.Failures = m.ProbeFailures + m.LeaseErrors
	}
	if m.tasks.watch.Running() && m.setting == wanted || !m.tasks.watch.Running() && m.Observing == wanted {
		return false
	}
	m.tasks.watch.Cancel()
	m.setting = wanted
	m.activities.watch(api.WatchRequest{
		Process: m.process(), Health: m.Spec.Health, Probe: wanted.Probe, Failures: wanted.Failures, Rules: wanted.Rules,
		Replaced: m.activities.replaced(),
	})
	return false
}

// watchEnded takes the answer to a Watch.
func (m *monitor) watchEnded(r *loop.Result[api.WatchResult]) {
	switch {
	case m.agentLost(r.Err):
	case r.Err != nil: // it proves nothing, the server may have been down; reconcile tries again
	case r.Value.Event != "":
		m.handle(r.Value)
	default:
		m.Observing = m.setting
	}
}

// observed takes the host's reports. Events of an incarnation that has ended, or of another workflow's, change nothing.
func (m *monitor) observed(r api.ProcessEvents) {
	if r.RunID != "" && r.RunID != workflow.GetInfo(m.Ctx).FirstRunID {
		return
	}
	m.Events = append(m.Events, slices.DeleteFunc(r.Events, func(e api.ProcessEvent) bool {
		return e.Event == api.WatchExited && e.Exit == nil // not of a host
	})...)
	m.dropEvents()
}

// takeEvent returns the next event of the current incarnation and forgets it; nil if there is none. Events of a later
// incarnation, which is about to take over, wait.
func (m *monitor) takeEvent() *api.WatchResult {
	for i, e := range m.Events {
		if e.Incarnation == m.Machine.Incarnation {
			m.Events = slices.Delete(m.Events, i, i+1)
			return &e.WatchResult
		}
	}
	return nil
}

// dropEvents forgets the events of incarnations that have ended.
func (m *monitor) dropEvents() {
	m.Events = slices.DeleteFunc(m.Events, func(e api.ProcessEvent) bool { return e.Incarnation < m.Machine.Incarnation })
}

// takeExit returns the exit of the current incarnation, if the host has reported it, and drops all earlier reports.
func (m *monitor) takeExit() *api.WatchResult {
	for {
		if e := m.takeEvent(); e == nil || e.Exit != nil {
			return e
		}
	}
}

// handle acts on an observation of the current incarnation, which serves.
func (m *monitor) handle(result api.WatchResult) {
	m.measured(result.Sample, result.Assessment, result.Usage)
	switch result.Event {
	case api.WatchExited:
		m.processExited(result.Exit, result.Reason)
	case api.WatchUnknown:
		m.hostLost(result.Reason, result.Reason)
	case api.WatchShutdown:
		m.rotator.cancelRotation()
		m.warn("moving worker to another host", result.Reason)
		m.endIncarnation(api.CauseHostLost, IntentReplace, result.Reason)
		m.transition(lifecycle.Drain, result.Reason)
	case api.WatchProbeFailed:
		m.probeFailed(result.Reason)
	case api.WatchProbePassed:
		m.probePassed()
	case api.WatchUnhealthy:
		m.unhealthy(result.Cause, result.Reason)
	case api.WatchReplace:
		m.Observing.Rules = api.WatchRules{}
		m.rotator.want(result.Cause, result.Reason)
	}
}

// epochEnded takes the end of an agent. It concerns the worker if that agent had its process, or the one that is to
// replace it.
func (m *monitor) epochEnded(e api.EpochEnded) {
	m.surge.agentEnded(e)
	m.surge.abandonDrains(e)
	if m.Process.Host != e.Host || m.Process.Epoch > e.Epoch || !m.Machine.State.Live() {
		return
	}
	m.EpochEnded = &e
}

// handleEpochEnd ends an incarnation whose agent has ended. It reports whether there was one.
func (m *monitor) handleEpochEnd() bool {
	e := m.EpochEnded
	if e == nil {
		return false
	}
	m.EpochEnded = nil
	if !m.Machine.State.Live() || m.Process.Host != e.Host || m.Process.Epoch > e.Epoch {
		return false
	}
	if slices.Contains(e.Kept, m.Machine.Incarnation) && e.NextAgent != nil && m.adopt(*e) {
		return true
	}
	m.measured(nil, nil, e.UsageOf(m.Machine.Incarnation))
	m.hostLost(e.Reason, e.Reason)
	return true
}

// agentLost ends the incarnation if err says that no agent took work for its process, and reports whether it does.
func (m *monitor) agentLost(err error) bool {
	lost := failure.NotStarted(err)
	if lost {
		m.hostLost(fmt.Sprintf("host %s lost: no agent took work from %s within %s", m.Process.Host,
			api.HostEpochQueue(m.Process.Host, m.Process.Epoch), api.AgentAway), failure.Message(err))
	}
	return lost
}

// hostLost ends the incarnation: its host takes no work. Its number fences the process, should it still run.
func (m *monitor) hostLost(reason, problem string) {
	cause := api.CauseHostLost
	if m.Machine.State == lifecycle.Stopping {
		cause = "" // something else has caused the end
	}
	m.warn("process lost", reason)
	m.endIncarnation(cause, IntentReplace, reason)
	m.processExited(&lifecycle.Exit{Error: problem}, reason)
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
		m.endIncarnation(api.CauseUnhealthy, IntentRecover, counted)
		m.transition(lifecycle.Unhealthy, counted)
	}
}

// unhealthy takes a finding that counts like a failed probe. A leased worker is degraded when its lease ends. With a
// cause the process is replaced at once, and no failure is counted, so that callers take no worker out of service.
func (m *monitor) unhealthy(cause api.Cause, reason string) {
	m.probeFailed(reason)
	switch state := m.Machine.State; {
	case cause != "" && (state == lifecycle.Busy || state == lifecycle.Degraded):
		m.endIncarnation(cause, IntentReplace, reason)
		m.transition(lifecycle.Unhealthy, reason)
	case state == lifecycle.Busy:
		m.DegradeReason = reason
	}
}

func (m *monitor) probePassed() {
	m.ProbeFailures, m.DegradeReason = 0, ""
	m.Machine = lifecycle.WithHealth(m.Machine, lifecycle.Healthy, m.Now())
	if m.Machine.State == lifecycle.Degraded && !m.leases.isResetting() {
		m.transition(lifecycle.ProbePassed, "probe passed")
	}
}

// measured takes what the host has measured of this incarnation; what is nil changes nothing.
func (m *monitor) measured(s *api.Sample, a *api.Assessment, u *api.Usage) {
	if s != nil {
		m.Sample = s
		m.Counters.PeakMemoryBytes = max(m.Counters.PeakMemoryBytes, s.MemoryBytes)
	}
	if a != nil {
		m.Assessment = a
	}
	if u != nil && u.Requests > m.Process.Observed.Requests { // what arrives may be older
		m.Counters.LastRequestAt = m.Now()
		m.Process.Observed = *u
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
