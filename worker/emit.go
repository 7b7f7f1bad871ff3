package worker

import (
	"sync"
	"time"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/limits"
)

// emitOfWorkflow emits an event of a workflow task that this agent has run, and counts transitions.
func (a *Agent) emitOfWorkflow(eventType, source string, at time.Time, data any) {
	if t, is := data.(api.TransitionEvent); is {
		a.transitions.Count(api.SourcePool(source), t.Transition, time.Now())
	}
	a.events.Emit(eventType, source, at, data)
}

// emitStarted emits that a process became ready.
func (a *Agent) emitStarted(p *process.Process) {
	info := p.Info()
	a.events.Emit(api.EventProcessStarted, api.WorkerSource(p.Worker()), time.Now(), api.ProcessEventData{
		Host: a.config.HostID, Incarnation: p.Incarnation(), PID: info.PID,
		TookMS: info.ReadyAt.Sub(info.StartedAt).Milliseconds(),
	})
}

// emitEnded emits that a process has ended. Its outcome is what this host knows: only the workflow knows whether the
// end was requested.
func (a *Agent) emitEnded(p *process.Process) {
	exit := p.Exit()
	a.events.Emit(api.EventProcessEnded, api.WorkerSource(p.Worker()), time.Now(), api.ProcessEventData{
		Host: a.config.HostID, Incarnation: p.Incarnation(), PID: p.Info().PID, Outcome: exit.Outcome(), Code: &exit.Code,
		Signal: exit.Signal,
		Reason: exit.Reason,
	})
}

// emittingObserver counts what the activities observe of the workers, and emits it.
type emittingObserver struct {
	activities.Observer
	agent   *Agent
	failing sync.Map // the incarnation, by worker, of those whose last probe failed
}

// Probed emits each failed probe, and the first that passes after it.
func (o *emittingObserver) Probed(p api.Process, took time.Duration, err error) {
	o.Observer.Probed(p, took, err)
	event := api.ProbeEvent{Host: o.agent.config.HostID, Incarnation: p.Incarnation, Healthy: err == nil}
	if err != nil {
		event.Reason = err.Error()
		o.failing.Store(p.Worker, p.Incarnation)
	} else if incarnation, _ := o.failing.LoadAndDelete(p.Worker); incarnation != p.Incarnation {
		return
	}
	o.agent.events.Emit(api.EventWorkerProbed, api.WorkerSource(p.Worker), time.Now(), event)
}

// Sampled emits a sample if somebody asks for samples.
func (o *emittingObserver) Sampled(p api.Process, s *api.Sample, requests int64) {
	o.Observer.Sampled(p, s, requests)
	if log := o.agent.events; log.Wants(api.EventWorkerSampled) {
		log.Add(api.EventWorkerSampled, api.WorkerSource(p.Worker), s.At, api.SampleEvent{
			Host: o.agent.config.HostID, Incarnation: p.Incarnation, Sample: *s, Requests: requests,
		})
	}
}

func (o *emittingObserver) StartFailed(p api.Process, err error) {
	o.Observer.StartFailed(p, err)
	o.agent.events.Emit(api.EventProcessStartFailed, api.WorkerSource(p.Worker), time.Now(), api.ProcessEventData{
		Host: o.agent.config.HostID, Incarnation: p.Incarnation, Reason: err.Error(),
	})
}

func (o *emittingObserver) Exceeded(p api.Process, v limits.Violation) {
	o.Observer.Exceeded(p, v)
	o.agent.events.Emit(api.EventLimitExceeded, api.WorkerSource(p.Worker), v.At, api.LimitEvent{
		Host: o.agent.config.HostID, Incarnation: p.Incarnation, Limit: v.Limit, Reason: v.Reason,
	})
}
