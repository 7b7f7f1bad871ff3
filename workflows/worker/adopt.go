package worker

import (
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// adopt continues with a process that another agent has taken over. The activities that the ended agent did not take
// are started again; the first is the Watch, by which the agent knows that the worker still wants the process. It
// reports false for a process that is about to be replaced or stopped: that agent ends it.
func (m *monitor) adopt(e api.EpochEnded) bool {
	switch m.Machine.State {
	case lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded, lifecycle.Suspended:
	default:
		return false
	}
	m.Process.Epoch = e.NextAgent.Epoch
	if e.NextAgent.Endpoint != "" {
		m.Process.Endpoint = e.NextAgent.Endpoint
		if m.Lease != nil {
			m.Lease.Endpoint = e.NextAgent.Endpoint
		}
	}
	m.tasks.watch.Reset()
	m.Observing = observing{}
	if m.tasks.probe.Running() || m.tasks.probe.Ended() {
		m.tasks.probe.Reset()
		m.NextCheckpoint = m.Now()
	}
	m.tasks.suspend.Abandon() // a failure is that of the agent before
	m.tasks.resume.Abandon()
	if m.leases.isResetting() {
		if m.tasks.reset.Abandon(); !m.tasks.reset.Ended() {
			m.activities.reset(m.ResetLease)
		}
	}
	reason := fmt.Sprintf("The next agent of host %s (epoch %d) took over process %d.", e.Host, e.NextAgent.Epoch,
		m.Process.PID)
	m.record(lifecycle.TakenOver, reason)
	m.warn("process taken over", reason)
	m.reporter.reportState() // where to find it
	return true
}
