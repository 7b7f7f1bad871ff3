package cli

import (
	"context"
	"io"
	"iter"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// controlPlane is what the commands use of tempool.Client; ReplayHistory is added here.
type controlPlane interface {
	Namespace() string
	MissingSearchAttributes(ctx context.Context) ([]string, error)
	Setup(ctx context.Context) ([]string, error)
	Agents(ctx context.Context) (int, error)
	Server(ctx context.Context) (tempool.Server, error)
	Hosts(ctx context.Context) ([]tempool.Host, error)
	HostStatus(ctx context.Context, hostID string) (api.HostStatus, error)
	DrainHost(ctx context.Context, hostID, reason string) ([]tempool.Moved, error)
	UndrainHost(ctx context.Context, hostID string) error
	CheckGateway(ctx context.Context, endpoint string) tempool.GatewayCheck
	DashboardLink(ctx context.Context, endpoint string) (tempool.DashboardLink, error)
	StartPool(ctx context.Context, start api.PoolStart) error
	ListPools(ctx context.Context) ([]string, error)
	Checkin(ctx context.Context, request api.CheckinRequest) error
	CheckinNow(ctx context.Context, request api.CheckinRequest) (api.CheckinResult, error)
	Pool(name string) pool
	Events(ctx context.Context, o tempool.EventOptions) iter.Seq2[api.Event, error]
	ReplayHistory(ctx context.Context, pool string, slot int) ([]lifecycle.Transition, error)
	Close()
}

// pool is what the commands use of tempool.Pool. Call is Stream of the pool, or of its worker in slot; Migrate is that
// of its session.
type pool interface {
	Name() string
	ScaleTo(ctx context.Context, r api.ScaleRequest) (api.ScaleResult, error)
	ApplySpec(ctx context.Context, request api.ApplyRequest) (api.ApplyResult, error)
	Restart(ctx context.Context, request api.RestartRequest) (api.RestartResult, error)
	HaltRollout(ctx context.Context, control api.Control) (api.Rollout, error)
	Stop(ctx context.Context, reason string) (api.PoolStopResult, error)
	Wait(ctx context.Context) error
	Signal(ctx context.Context, slot int, signal string, control api.Control) error
	Status(ctx context.Context) (api.PoolStatus, error)
	Running(ctx context.Context) (api.PoolStatus, error)
	Workers(ctx context.Context) (api.PoolWorkers, error)
	Roster(ctx context.Context) (api.PoolWorkers, error)
	State(ctx context.Context, slot int) (api.WorkerState, error)
	Logs(ctx context.Context, o tempool.LogOptions, yield func(api.LogLine)) error
	History(ctx context.Context, slot int) ([]lifecycle.Transition, error)
	TryCheckout(ctx context.Context, o tempool.CheckoutOptions) (*tempool.Lease, error)
	Checkout(ctx context.Context, o tempool.CheckoutOptions) (*tempool.Lease, error)
	Call(ctx context.Context, slot *int, method string, in any, o tempool.CallOptions) iter.Seq2[[]byte, error]
	ReleaseKey(ctx context.Context, slot int) (api.ReleaseResult, error)
	Session(id string) *tempool.Session
	Sessions(ctx context.Context, after string, limit int) (*tempool.SessionList, error)
	Bindings(ctx context.Context, after string, limit int) (*api.SessionBindings, error)
	ExportSessions(ctx context.Context, out io.Writer) (*api.SessionBackupEnd, error)
	ImportSessions(ctx context.Context, backup io.Reader, o tempool.ImportOptions) (*api.SessionImport, error)
	SessionCopy(ctx context.Context) (*api.SessionCopy, error)
	CopySessions(ctx context.Context, request api.SessionCopyRequest) (*api.SessionCopy, error)
	StepSessionCopy(ctx context.Context, step api.SessionCopyStep) (*api.SessionCopy, error)
	Migrate(ctx context.Context, session string, request api.MigrateSessionRequest) (migration, error)
	Evacuate(ctx context.Context, request api.EvacuateRequest) (migration, error)
	RebalanceSessions(ctx context.Context, request api.RebalanceSessionsRequest) (migration, error)
}

// migration is what the commands use of tempool.Migration.
type migration interface {
	WorkflowID() string
	Progress(ctx context.Context) (api.SessionProgress, error)
	Wait(ctx context.Context) (api.SessionMoves, error)
}

// dialFunc connects to a control plane; the caller closes it.
type dialFunc func(ctx context.Context, o tempool.Options) (controlPlane, error)

type clientControlPlane struct{ *tempool.Client }

func (c clientControlPlane) Pool(name string) pool { return clientPool{c.Client.Pool(name)} }

type clientPool struct{ *tempool.Pool }

func (p clientPool) Call(ctx context.Context, slot *int, method string, in any,
	o tempool.CallOptions) iter.Seq2[[]byte, error] {
	if slot != nil {
		return p.With(o).Worker(*slot).Stream(ctx, method, in)
	}
	return p.With(o).Stream(ctx, method, in)
}

func (p clientPool) ReleaseKey(ctx context.Context, slot int) (api.ReleaseResult, error) {
	return p.Worker(slot).ReleaseKey(ctx)
}

func (p clientPool) Migrate(ctx context.Context, session string, request api.MigrateSessionRequest) (migration, error) {
	return p.Session(session).Migrate(ctx, request)
}

func (p clientPool) Evacuate(ctx context.Context, request api.EvacuateRequest) (migration, error) {
	return p.Pool.Evacuate(ctx, request)
}

func (p clientPool) RebalanceSessions(ctx context.Context, request api.RebalanceSessionsRequest) (migration, error) {
	return p.Pool.RebalanceSessions(ctx, request)
}

func dial(ctx context.Context, o tempool.Options) (controlPlane, error) {
	client, err := tempool.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return clientControlPlane{client}, nil
}
