package cli

import (
	"context"
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

// pool is what the commands use of tempool.Pool. With is the pool itself, for requests to its gateways.
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
	With(o tempool.CallOptions) *tempool.Pool
	Session(id string) *tempool.Session
	Evacuate(ctx context.Context, request api.EvacuateRequest) (*tempool.Migration, error)
	RebalanceSessions(ctx context.Context, request api.RebalanceSessionsRequest) (*tempool.Migration, error)
}

// dialFunc connects to a control plane; the caller closes it.
type dialFunc func(ctx context.Context, o tempool.Options) (controlPlane, error)

type clientControlPlane struct{ *tempool.Client }

func (c clientControlPlane) Pool(name string) pool { return c.Client.Pool(name) }

func dial(ctx context.Context, o tempool.Options) (controlPlane, error) {
	client, err := tempool.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return clientControlPlane{client}, nil
}
