package cli

import (
	"context"
	"iter"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// controlPlane is what the commands ask of tempool.Client; each method is the client's, but for ReplayHistory.
type controlPlane interface {
	Namespace() string
	MissingSearchAttributes(ctx context.Context) ([]string, error)
	Setup(ctx context.Context) ([]string, error)
	Agents(ctx context.Context, label string) (tempool.Agents, error)
	StartPool(ctx context.Context, start tempool.PoolStart) error
	ListPools(ctx context.Context) ([]string, error)
	Checkin(ctx context.Context, request tempool.CheckinRequest) error
	Pool(name string) pool
	ReplayHistory(ctx context.Context, pool string, slot int) ([]lifecycle.Transition, error)
	Close()
}

// pool is what the commands ask of tempool.Pool; each method is the pool's, Calls being its With, and Migrate its session's.
type pool interface {
	Scale(ctx context.Context, size int) (tempool.ScaleResult, error)
	Apply(ctx context.Context, s spec.Spec) (tempool.ApplyResult, error)
	Restart(ctx context.Context, request tempool.RestartRequest) (tempool.RestartResult, error)
	Stop(ctx context.Context, reason string) (tempool.PoolStopResult, error)
	Wait(ctx context.Context) error
	Signal(ctx context.Context, slot int, signal string, control tempool.Control) error
	Status(ctx context.Context) (tempool.PoolStatus, error)
	Running(ctx context.Context) (tempool.PoolStatus, error)
	View(ctx context.Context) (tempool.PoolView, error)
	State(ctx context.Context, slot int) (tempool.WorkerState, error)
	History(ctx context.Context, slot int) ([]lifecycle.Transition, error)
	FullHistory(ctx context.Context, slot int) ([]lifecycle.Transition, bool, error)
	TryCheckout(ctx context.Context, o tempool.CheckoutOptions) (*tempool.Lease, error)
	Checkout(ctx context.Context, o tempool.CheckoutOptions) (*tempool.Lease, error)
	Calls(o tempool.CallOptions) calls
	Session(id string) *tempool.Session
	Sessions(ctx context.Context, after string, limit int) (*tempool.SessionList, error)
	SessionCopy(ctx context.Context) (*tempool.SessionCopy, error)
	CopySessions(ctx context.Context, request tempool.SessionCopyRequest) (*tempool.SessionCopy, error)
	StepSessionCopy(ctx context.Context, step tempool.SessionCopyStep) (*tempool.SessionCopy, error)
	Migrate(ctx context.Context, session string, request tempool.MigrateSessionRequest) (migration, error)
	Evacuate(ctx context.Context, request tempool.EvacuateRequest) (migration, error)
	RebalanceSessions(ctx context.Context, request tempool.RebalanceSessionsRequest) (migration, error)
}

// migration is what the commands ask of tempool.Migration.
type migration interface {
	WorkflowID() string
	Progress(ctx context.Context) (tempool.SessionProgress, error)
	Wait(ctx context.Context) (tempool.SessionMoves, error)
}

// calls is what the commands ask of tempool.Pool.With.
type calls interface {
	CallRaw(ctx context.Context, method string, body []byte) ([]byte, error)
	Stream(ctx context.Context, method string, in any) iter.Seq2[[]byte, error]
}

// dialer opens a control plane, which the caller closes.
type dialer func(ctx context.Context, o tempool.Options) (controlPlane, error)

type connection struct{ *tempool.Client }

func (c connection) Pool(name string) pool { return poolOf{c.Client.Pool(name)} }

type poolOf struct{ *tempool.Pool }

func (p poolOf) Calls(o tempool.CallOptions) calls { return p.With(o) }

func (p poolOf) Migrate(ctx context.Context, session string, request tempool.MigrateSessionRequest) (migration, error) {
	return p.Session(session).Migrate(ctx, request)
}

func (p poolOf) Evacuate(ctx context.Context, request tempool.EvacuateRequest) (migration, error) {
	return p.Pool.Evacuate(ctx, request)
}

func (p poolOf) RebalanceSessions(ctx context.Context, request tempool.RebalanceSessionsRequest) (migration, error) {
	return p.Pool.RebalanceSessions(ctx, request)
}

func dial(ctx context.Context, o tempool.Options) (controlPlane, error) {
	client, err := tempool.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return connection{client}, nil
}
