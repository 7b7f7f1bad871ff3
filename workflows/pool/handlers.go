package pool

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

const maxSize = 1000

func (p *pool) register(ctx workflow.Context) error {
	poolInbox(p, api.SignalWorkerChanged, p.workerChanged)
	poolInbox(p, api.SignalRotationRequest, p.rotationRequested)
	poolInbox(p, api.SignalRotationDone, p.rotationDone)
	poolInbox(p, api.SignalStartRequested, p.startRequested)
	poolInbox(p, api.SignalFilesChanged, p.filesChanged)
	poolInbox(p, api.SignalMemoryPressure, p.memoryPressure)
	poolInbox(p, api.SignalSessionStoreClaimed, p.sessionStoreClaimed)
	force := workflow.GetSignalChannel(p.ctx, api.SignalForceContinue)
	p.selector.AddReceive(force, func(c workflow.ReceiveChannel) { p.force = c.ReceiveAsync(nil) })

	if err := workflow.SetQueryHandler(ctx, api.QueryStatus, p.status); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(ctx, api.QueryReport, p.report); err != nil {
		return err
	}
	return p.registerUpdates(ctx)
}

// poolInbox has handle called with each signal of that name, in order. What cannot be read is told in the log.
func poolInbox[T any](p *pool, name string, handle func(T)) {
	box := loop.NewInbox(p.ctx, name, handle, func(what string) {
		workflow.GetLogger(p.ctx).Warn("a signal was refused", "pool", p.PoolStart.Pool, "what", what)
	})
	p.signals = append(p.signals, box)
	p.selector.AddReceive(box.Channel, func(workflow.ReceiveChannel) { box.Receive() })
}

// refuseIf makes an update's validator of a check.
func refuseIf[T any](check func(T) *api.Error) workflow.UpdateHandlerOptions {
	return workflow.UpdateHandlerOptions{Validator: func(request T) error {
		if refused := check(request); refused != nil {
			return failure.Refusal(refused)
		}
		return nil
	}}
}

func (p *pool) registerUpdates(ctx workflow.Context) error {
	updates := []struct {
		name    string
		handler any
		options workflow.UpdateHandlerOptions
	}{
		{api.UpdateScale, p.scale, refuseIf(p.scaleRefusal)},
		{api.UpdateApply, p.apply, refuseIf(p.applyRefusal)},
		{api.UpdateRestart, p.restart, refuseIf(func(r api.RestartRequest) *api.Error { return p.slotRefusal(r.Worker) })},
		{api.UpdateDrain, p.drain, refuseIf(p.drainRefusal)},
		{api.UpdateEvacuate, p.evacuate, refuseIf(p.evacuateRefusal)},
		{api.UpdateStop, func(_ workflow.Context, c api.Control) (api.PoolStopResult, error) {
			return api.PoolStopResult{Stopping: p.stopAll(display.Attributed(c.Reason, c.By))}, nil
		}, workflow.UpdateHandlerOptions{}},
	}
	for _, u := range updates {
		if err := workflow.SetUpdateHandlerWithOptions(ctx, u.name, u.handler, u.options); err != nil {
			return err
		}
	}
	return nil
}

func (p *pool) stoppingRefusal() *api.Error {
	if p.Stopping {
		return api.Errorf(api.CodeDraining, "pool %s is stopping; start it anew when it has ended", p.PoolStart.Pool)
	}
	return nil
}

func (p *pool) scaleRefusal(r api.ScaleRequest) *api.Error {
	if r.Size < 1 || r.Size > maxSize {
		return api.Errorf(api.CodeInvalid, "size is %d; it must be from 1 to %d (to have none, stop the pool)", r.Size, maxSize)
	}
	return p.stoppingRefusal()
}

func (p *pool) scale(_ workflow.Context, r api.ScaleRequest) (api.ScaleResult, error) {
	result := api.ScaleResult{From: p.Size, To: r.Size}
	p.Size = r.Size
	p.Spec.Pool.Size = r.Size
	p.wakeUp()
	return result, nil
}

func (p *pool) applyRefusal(r api.ApplyRequest) *api.Error {
	if r.Spec.Pool.Name != p.PoolStart.Pool {
		return api.Errorf(api.CodeInvalid, "the spec is for pool %q, this is pool %q; a pool cannot be renamed", r.Spec.Pool.Name, p.PoolStart.Pool)
	}
	if err := r.Spec.Validate(); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	return p.stoppingRefusal()
}

// apply takes a new spec. A new size alone restarts nobody.
func (p *pool) apply(_ workflow.Context, r api.ApplyRequest) (api.ApplyResult, error) {
	p.Size = r.Spec.Pool.Size
	changed := !sameSpec(p.Spec, r.Spec)
	p.Spec = r.Spec
	if changed {
		p.SpecVersion++
		p.closeBreaker() // it may be what was wrong
		p.beginRollout(api.CauseSpec, fmt.Sprintf("apply of spec version %d", p.SpecVersion), p.SpecVersion, p.slots())
	}
	p.wakeUp()
	return api.ApplyResult{SpecVersion: p.SpecVersion, Changed: changed}, nil
}

func (p *pool) slotRefusal(number *int) *api.Error {
	if number != nil && (*number < 0 || *number >= p.Size) {
		return api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %d; its workers are 0 to %d", p.PoolStart.Pool, *number, p.Size-1)
	}
	return p.stoppingRefusal()
}

// restart restarts one worker at once, or all of them rolling.
func (p *pool) restart(ctx workflow.Context, r api.RestartRequest) (api.RestartResult, error) {
	reason := display.Attributed(r.Reason, r.By)
	if r.Worker != nil {
		if err := p.awaitRunning(ctx, *r.Worker); err != nil {
			return api.RestartResult{}, err
		}
		p.restartWorker(*r.Worker, api.CauseOperator, reason)
		return api.RestartResult{Workers: []int{*r.Worker}}, nil
	}
	p.closeBreaker()
	slots := p.slots()
	p.beginRollout(api.CauseOperator, reason, 0, slots)
	p.wakeUp()
	return api.RestartResult{Workers: slots}, nil
}

// awaitRunning waits until a worker that is to be told something can hear it.
func (p *pool) awaitRunning(ctx workflow.Context, number int) error {
	err := workflow.Await(ctx, func() bool {
		s := p.slot(number)
		return p.slotRefusal(&number) != nil || s != nil && !s.isStarting()
	})
	if err != nil {
		return err
	}
	if refused := p.slotRefusal(&number); refused != nil {
		return failure.Refusal(refused)
	}
	return nil
}

func equalJSON(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}
