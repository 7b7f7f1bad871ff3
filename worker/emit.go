package worker

import (
	"time"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// emitStarted emits that a process became ready.
func (a *Agent) emitStarted(p *process.Process) {
	info := p.Info()
	a.events.Emit(api.EventProcessStarted, api.WorkerSource(p.Worker()), time.Now(), api.ProcessEventData{
		Host: a.config.HostID, Incarnation: p.Incarnation(), PID: info.PID, TookMS: info.ReadyAt.Sub(info.StartedAt).Milliseconds(),
	})
}

// emitEnded emits that a process has ended. Its outcome is as far as this host knows: only the workflow knows whether its end was requested.
func (a *Agent) emitEnded(p *process.Process) {
	exit := p.Exit()
	a.events.Emit(api.EventProcessEnded, api.WorkerSource(p.Worker()), time.Now(), api.ProcessEventData{
		Host: a.config.HostID, Incarnation: p.Incarnation(), PID: p.Info().PID, Outcome: activities.Outcome(exit), Code: &exit.Code, Signal: exit.Signal,
		Reason: exit.Reason,
	})
}

// emittingObserver emits what the activities see of the workers, besides counting it.
type emittingObserver struct {
	activities.Observer
	agent *Agent
}

func (o emittingObserver) StartFailed(p api.Process, err error) {
	o.Observer.StartFailed(p, err)
	o.agent.events.Emit(api.EventProcessStartFailed, api.WorkerSource(p.Worker), time.Now(), api.ProcessEventData{
		Host: o.agent.config.HostID, Incarnation: p.Incarnation, Reason: err.Error(),
	})
}
