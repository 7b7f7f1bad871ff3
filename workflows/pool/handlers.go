package pool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// maxSize is the maximum number of workers of a pool.
const maxSize = 1000

// register sets the handlers of all signals, queries and updates, before anything else runs.
func (p *pool) register(ctx workflow.Context) error {
	onSignal(p, api.SignalWorkerChanged, p.workerChanged)
	onSignal(p, api.SignalProcessesStarted, p.processesStarted)
	onSignal(p, api.SignalRotationRequest, p.disruptions.requested)
	onSignal(p, api.SignalRotationDone, p.disruptions.done)
	onSignal(p, api.SignalStartRequested, p.throttle.requested)
	onSignal(p, api.SignalFilesChanged, p.filesChanged)
	onSignal(p, api.SignalMemoryPressure, p.pressure.reported)
	onSignal(p, api.SignalSessionStoreClaimed, p.sessionStoreClaimed)
	onSignal(p, api.SignalWorkerClosed, p.workerClosed)
	onSignal(p, api.SignalDemand, p.scaling.reported)
	onSignal(p, api.SignalForceContinue, func(api.Control) { p.ForceContinue() })

	if err := workflow.SetQueryHandler(ctx, api.QueryStatus, p.status); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(ctx, api.QueryReport, p.report); err != nil {
		return err
	}
	return p.registerUpdates(ctx)
}

// onSignal calls handle with each signal of that name. The pool logs a payload that cannot be decoded.
func onSignal[T any](p *pool, name string, handle func(T)) {
	loop.OnSignal(p.Loop, name, handle, func(reason string) {
		workflow.GetLogger(p.Ctx).Warn("signal refused", "pool", p.name(), "reason", reason)
	})
}

func (p *pool) registerUpdates(ctx workflow.Context) error {
	return loop.SetUpdates(ctx,
		loop.Update{Name: api.UpdateScale, Handler: p.scale, Options: failure.Validator(p.scaleRefusal)},
		loop.Update{Name: api.UpdateApply, Handler: p.apply, Options: failure.Validator(p.applyRefusal)},
		loop.Update{Name: api.UpdateRestart, Handler: p.restart,
			Options: failure.Validator(func(r api.RestartRequest) *api.Error { return p.slotRefusal(r.Worker) })},
		loop.Update{Name: api.UpdateDrain, Handler: p.drain, Options: failure.Validator(p.drainRefusal)},
		loop.Update{Name: api.UpdateEvacuate, Handler: p.evacuate,
			Options: failure.Validator(func(r api.EvacuateRequest) *api.Error { return p.slotRefusal(&r.Worker) })},
		loop.Update{Name: api.UpdateHaltRollout, Handler: p.haltRollout,
			Options: failure.Validator(func(api.Control) *api.Error { return p.haltRefusal() })},
		loop.Update{Name: api.UpdateStop, Handler: func(_ workflow.Context, c api.Control) (api.PoolStopResult, error) {
			return api.PoolStopResult{Stopping: p.stopAll(display.Attributed(c.Reason, c.By))}, nil
		}})
}

func (p *pool) stoppingRefusal() *api.Error {
	if p.IsOverdue() {
		return api.Errorf(api.CodeContinuing, "pool %s is about to continue as new", p.name()).After(continuingRetry)
	}
	if p.Stopping {
		return api.Errorf(api.CodeDraining, "pool %s is stopping; start it again after it has stopped", p.name())
	}
	return nil
}

func (p *pool) applyRefusal(r api.ApplyRequest) *api.Error {
	if r.Spec.Pool.Name != p.name() {
		return api.Errorf(api.CodeInvalid, "the spec is for pool %q, this is pool %q; a pool cannot be renamed",
			r.Spec.Pool.Name, p.name())
	}
	if err := r.Spec.Validate(); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	if refused := p.stoppingRefusal(); refused != nil {
		return refused
	}
	if r.IfVersion != 0 && r.IfVersion != p.SpecVersion {
		return api.Errorf(api.CodeVersionConflict,
			"pool %s has spec version %d, not %d: another spec was applied; compare yours with it (tempool pool diff, or "+
				"the page of the pool), and apply it to version %[2]d",
			p.name(), p.SpecVersion, r.IfVersion)
	}
	return nil
}

// apply sets a new spec and rolls it out. A new size or a new [scale] section alone restarts no worker, but any apply
// begins a halted rollout again: what its program reads on the hosts may have been mended.
func (p *pool) apply(_ workflow.Context, r api.ApplyRequest) (api.ApplyResult, error) {
	changed, by := !sameButSize(p.Spec, r.Spec), attribution(r.Reason, r.By)
	again := p.Rollout != nil && p.Rollout.Halted != ""
	p.Spec = r.Spec
	p.followSpec(by)
	if changed {
		p.SpecVersion++
	}
	if changed || again {
		reason := fmt.Sprintf("apply of spec version %d", p.SpecVersion)
		if by != "" {
			reason += ": " + by
		}
		p.emit(api.EventPoolApplied, api.PoolEvent{SpecVersion: p.SpecVersion, Reason: by})
		p.throttle.closeBreaker() // the old spec may have been the cause
		p.disruptions.beginRollout(rollout{Cause: api.CauseSpec, Rollout: api.Rollout{Reason: reason, Waiting: p.slots()}})
	}
	p.WakeUp()
	return api.ApplyResult{SpecVersion: p.SpecVersion, Changed: changed || again}, nil
}

// sameButSize reports whether two specs are equal except for the size of the pool and what it follows.
func sameButSize(a, b spec.Spec) bool {
	a.Pool.Size, a.Scale = b.Pool.Size, b.Scale
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

func (p *pool) slotRefusal(number *int) *api.Error {
	if number != nil && !p.isMember(*number) {
		return api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %d; tempool ps %s lists its "+
			"workers", p.name(), *number,
			p.name())
	}
	return p.stoppingRefusal()
}

// restart restarts one worker immediately, or all of them in a rollout. It returns when the one worker has the order.
func (p *pool) restart(ctx workflow.Context, r api.RestartRequest) (api.RestartResult, error) {
	reason := display.Attributed(r.Reason, r.By)
	if r.Worker != nil {
		err := p.order(ctx, *r.Worker, func() { p.disruptions.restartWorker(*r.Worker, api.CauseOperator, reason) })
		if err != nil {
			return api.RestartResult{}, err
		}
		return api.RestartResult{Workers: []int{*r.Worker}}, nil
	}
	slots := p.slots()
	if r.Host == "" {
		p.throttle.closeBreaker()
	} else {
		var refused *api.Error
		if slots, refused = p.leaving(r.Host); refused != nil {
			return api.RestartResult{}, failure.Refusal(refused)
		}
		if len(slots) == 0 {
			return api.RestartResult{Workers: slots}, nil
		}
	}
	p.disruptions.beginRollout(rollout{Cause: api.CauseOperator, Rollout: api.Rollout{Reason: reason, Waiting: slots}})
	p.WakeUp()
	return api.RestartResult{Workers: slots}, nil
}

func (p *pool) haltRefusal() *api.Error {
	if r := p.Rollout; r == nil || r.Halted != "" || len(r.Waiting) == 0 {
		return api.Errorf(api.CodeInvalid, "pool %s has no rolling restart for which workers wait; see tempool pool status "+
			"%[1]s", p.name())
	}
	return p.stoppingRefusal()
}

// haltRollout halts the rolling restart: the workers that wait for it keep their process and spec.
func (p *pool) haltRollout(_ workflow.Context, c api.Control) (api.Rollout, error) {
	p.Rollout.halt(display.Attributed(c.Reason, c.By))
	p.WakeUp()
	return *p.Rollout.status(), nil
}

// leaving are the workers to restart so that they leave a host: those there, and what the present rollout, which the
// new one replaces, has left. It is refused where they could not start on another host, or would get a spec that
// failed.
func (p *pool) leaving(host string) ([]int, *api.Error) {
	slots := slices.DeleteFunc(p.slots(), func(n int) bool {
		s := p.slot(n)
		return s.Host != host || !s.State.Live() || s.Gone
	})
	switch old := p.Rollout; {
	case len(slots) == 0:
	case p.sessionsHost() == host:
		return nil, api.Errorf(api.CodeInvalid, "the workers of pool %s cannot leave host %s, whose own store has their "+
			"sessions (sessions.store = %q); move the sessions to Redis, or stop the pool", p.name(), host,
			p.Spec.Sessions.Store)
	case old != nil && old.Halted != "":
		return nil, api.Errorf(api.CodeInvalid, "the rollout of pool %s has halted; apply a spec that works, or "+
			"restart the pool, before its workers leave host %s", p.name(), host)
	case old != nil:
		for _, n := range old.Waiting {
			if s := p.slot(n); !slices.Contains(slots, n) && s != nil && !p.disruptions.isOverruled(old, *s) {
				slots = append(slots, n)
			}
		}
	}
	return slots, nil
}

const (
	// continuingRetry is after how long the next run of a pool can take an update.
	continuingRetry = 500 * time.Millisecond
	// runningTimeout is how long an update waits for the workflow of a worker.
	runningTimeout = 30 * time.Second
)

// order gives a worker the order that give sets, and waits until it has it.
func (p *pool) order(ctx workflow.Context, number int, give func()) error {
	if err := p.awaitRunning(ctx, number); err != nil {
		return err
	}
	give()
	p.WakeUp()
	has, err := workflow.AwaitWithTimeout(ctx, runningTimeout, func() bool {
		s := p.slot(number)
		return (s == nil || s.Order == nil) && !p.IsSending(api.WorkerWorkflowID(p.name(), number), api.SignalOrder)
	})
	if err == nil && !has {
		return failure.Refusal(api.Errorf(api.CodeUnavailable, "%s has not got the order within %s; the pool goes on to "+
			"send it", p.worker(number), runningTimeout))
	}
	return err
}

// awaitRunning waits until signals reach a worker.
func (p *pool) awaitRunning(ctx workflow.Context, number int) error {
	running := func() bool {
		s := p.slot(number)
		return p.slotRefusal(&number) != nil || s != nil && !s.isStarting()
	}
	if !running() { // otherwise there is nothing to time
		if ok, err := workflow.AwaitWithTimeout(ctx, runningTimeout, running); err != nil {
			return err
		} else if !ok {
			return failure.Refusal(api.Errorf(api.CodeStarting, "the workflow of %s did not start within %s; try again",
				p.worker(number), runningTimeout).After(time.Second))
		}
	}
	if refused := p.slotRefusal(&number); refused != nil {
		return failure.Refusal(refused)
	}
	return nil
}
