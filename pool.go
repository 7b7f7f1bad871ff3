package tempool

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/spec"
)

// Pool is one pool by its name. It is safe for concurrent use.
type Pool struct {
	client *Client
	name   string
	call   CallOptions
}

// Pool returns the pool with this name without contacting anything; requests about a pool that is not running fail with
// CodePoolNotFound.
func (c *Client) Pool(name string) *Pool { return &Pool{client: c, name: name} }

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

// With returns the pool with other options for its calls; p is not changed.
func (p *Pool) With(o CallOptions) *Pool {
	other := *p
	other.call = o
	return &other
}

// Scale sets the number of workers; where it follows demand, it continues from there. It returns when the pool has
// recorded the size; the workers follow in the background.
func (p *Pool) Scale(ctx context.Context, size int) (r api.ScaleResult, err error) {
	return p.ScaleTo(ctx, api.ScaleRequest{Size: size})
}

// ScaleTo sets the number of workers, or the bounds within which it follows the demand.
func (p *Pool) ScaleTo(ctx context.Context, request api.ScaleRequest) (r api.ScaleResult, err error) {
	err = p.update(ctx, api.UpdateScale, request, &r)
	return r, err
}

// Apply sets the pool's spec. The pool rolls it out in the background, at most rotation.max_unavailable workers at a
// time.
func (p *Pool) Apply(ctx context.Context, s spec.Spec) (r api.ApplyResult, err error) {
	return p.ApplySpec(ctx, api.ApplyRequest{Spec: s})
}

// ApplySpec is Apply with who applies the spec and why, and with the version of the spec that it replaces: it fails
// with CodeVersionConflict if the pool has another.
func (p *Pool) ApplySpec(ctx context.Context, request api.ApplyRequest) (r api.ApplyResult, err error) {
	err = p.update(ctx, api.UpdateApply, request, &r)
	return r, err
}

// Restart restarts the worker of the request, or all workers in a rolling restart if it names none. It also starts
// workers that gave up.
func (p *Pool) Restart(ctx context.Context, request api.RestartRequest) (r api.RestartResult, err error) {
	err = p.update(ctx, api.UpdateRestart, request, &r)
	return r, err
}

// HaltRollout halts the rolling restart that is under way: workers that restart now go on, and those that wait for it
// keep their process and spec until the next Apply or Restart of the pool. It fails with CodeInvalid if there is none.
func (p *Pool) HaltRollout(ctx context.Context, control api.Control) (r api.Rollout, err error) {
	err = p.update(ctx, api.UpdateHaltRollout, control, &r)
	return r, err
}

// Stop stops the pool: its workers drain and end. It returns when the pool has recorded that; Wait waits for the end.
func (p *Pool) Stop(ctx context.Context, reason string) (r api.PoolStopResult, err error) {
	err = p.update(ctx, api.UpdateStop, api.Control{Reason: reason}, &r)
	return r, err
}

// Wait waits until the pool has ended for any reason, termination and cancellation of its workflow included.
func (p *Pool) Wait(ctx context.Context) error {
	err := p.client.temporal.GetWorkflow(ctx, api.PoolWorkflowID(p.name), "").Get(ctx, nil)
	if _, ok := errors.AsType[*temporal.WorkflowExecutionError](err); ok {
		return nil
	}
	return p.asPoolNotFound(p.client.fromTemporal(err, "wait for pool "+p.name))
}

// Signal sends an order to one worker: api.SignalDrain, SignalStop, SignalSuspend or SignalResume. It returns when
// Temporal has recorded the signal.
func (p *Pool) Signal(ctx context.Context, slot int, signal string, control api.Control) error {
	return p.client.fromTemporal(
		p.client.temporal.SignalWorkflow(ctx, api.WorkerWorkflowID(p.name, slot), "", api.SignalOrder,
			api.Order{Kind: signal, Reason: control.Reason, By: control.By}), signal+" "+api.WorkerName(p.name, slot))
}

// continuingTimeout is how long an update is repeated that a pool refuses because it is about to continue as new.
const continuingTimeout = 30 * time.Second

func (p *Pool) update(ctx context.Context, name string, argument, result any) error {
	deadline := time.Now().Add(continuingTimeout)
	for {
		err := p.client.update(ctx, api.PoolWorkflowID(p.name), name, name+" pool "+p.name, argument, result)
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Code != api.CodeContinuing || time.Now().After(deadline) {
			return p.asPoolNotFound(err)
		}
		if !sleep.For(ctx.Done(), refused.RetryAfter) {
			return err
		}
	}
}

// asPoolNotFound replaces the error that fromTemporal makes of an unknown workflow by CodePoolNotFound.
func (p *Pool) asPoolNotFound(err error) error {
	if coded, ok := errors.AsType[*api.Error](err); ok && coded.Code == api.CodeWorkerNotFound &&
		is[*serviceerror.NotFound](coded.Err) {
		missing := api.Errorf(api.CodePoolNotFound, "pool %s is not running; tempool pool list shows the running "+
			"pools", p.name)
		missing.Err = coded.Err
		return missing
	}
	return err
}

// validName returns CodePoolNotFound for a name that no pool can have.
func (p *Pool) validName() error {
	if invalid := api.CheckPoolName(p.name, api.CodePoolNotFound); invalid != nil {
		return invalid
	}
	return nil
}
