package ui

import (
	"context"
	"iter"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Fleet is what the dashboard asks of the control plane and of other agents. Errors are coded like those of
// tempool.Client, which FleetOf adapts.
type Fleet interface {
	Hosts(ctx context.Context) ([]tempool.Host, error)
	HostStatus(ctx context.Context, hostID string) (api.HostStatus, error)
	ListPools(ctx context.Context) ([]string, error)
	Status(ctx context.Context, pool string) (api.PoolStatus, error)
	State(ctx context.Context, pool string, slot int) (api.WorkerState, error)
	History(ctx context.Context, pool string, slot int) ([]lifecycle.Transition, error)
	Logs(ctx context.Context, pool string, o tempool.LogOptions, yield func(api.LogLine)) error
	RecentSamples(ctx context.Context, pool string, o tempool.SampleOptions) ([]api.RecentSamples, error)
	RecentQueue(ctx context.Context, pool string, o tempool.QueueOptions) ([]api.RecentQueue, error)
	Events(ctx context.Context, o tempool.EventOptions) iter.Seq2[api.Event, error]
	Sessions(ctx context.Context, pool, after string, limit int) (*tempool.SessionList, error)
	Session(ctx context.Context, pool, id string) (*tempool.SessionState, error)
	DeleteSession(ctx context.Context, pool, id string) error
	// MigrateSession begins to move a session to the worker to, POOL/SLOT.
	MigrateSession(ctx context.Context, pool, id, to string) error
	Scale(ctx context.Context, pool string, request api.ScaleRequest) error
	// WorkerSpec is the spec that a worker has.
	WorkerSpec(ctx context.Context, pool string, slot int) (api.WorkerSpec, error)
	Restart(ctx context.Context, pool string, request api.RestartRequest) error
	StopPool(ctx context.Context, pool, reason string) error
	Signal(ctx context.Context, pool string, slot int, signal string, control api.Control) error
	Checkin(ctx context.Context, request api.CheckinRequest) error
}

// FleetOf adapts a client.
func FleetOf(c *tempool.Client) Fleet { return fleet{c} }

// fleet takes Hosts, HostStatus, ListPools, Events and Checkin from the client.
type fleet struct{ *tempool.Client }

func (f fleet) Status(ctx context.Context, pool string) (api.PoolStatus, error) {
	return f.Pool(pool).Status(ctx)
}

func (f fleet) State(ctx context.Context, pool string, slot int) (api.WorkerState, error) {
	return f.Pool(pool).State(ctx, slot)
}

func (f fleet) History(ctx context.Context, pool string, slot int) ([]lifecycle.Transition, error) {
	return f.Pool(pool).History(ctx, slot)
}

func (f fleet) Logs(ctx context.Context, pool string, o tempool.LogOptions, yield func(api.LogLine)) error {
	return f.Pool(pool).Logs(ctx, o, yield)
}

func (f fleet) RecentSamples(ctx context.Context, pool string, o tempool.SampleOptions) ([]api.RecentSamples, error) {
	return f.Pool(pool).RecentSamples(ctx, o)
}

func (f fleet) RecentQueue(ctx context.Context, pool string, o tempool.QueueOptions) ([]api.RecentQueue, error) {
	return f.Pool(pool).RecentQueue(ctx, o)
}

func (f fleet) Sessions(ctx context.Context, pool, after string, limit int) (*tempool.SessionList, error) {
	return f.Pool(pool).Sessions(ctx, after, limit)
}

func (f fleet) Session(ctx context.Context, pool, id string) (*tempool.SessionState, error) {
	return f.Pool(pool).Session(id).Get(ctx)
}

func (f fleet) DeleteSession(ctx context.Context, pool, id string) error {
	return f.Pool(pool).Session(id).Delete(ctx)
}

func (f fleet) MigrateSession(ctx context.Context, pool, id, to string) error {
	_, err := f.Pool(pool).Session(id).Migrate(ctx, api.MigrateSessionRequest{To: to})
	return err
}

func (f fleet) Scale(ctx context.Context, pool string, request api.ScaleRequest) error {
	_, err := f.Pool(pool).ScaleTo(ctx, request)
	return err
}

func (f fleet) WorkerSpec(ctx context.Context, pool string, slot int) (api.WorkerSpec, error) {
	return f.Pool(pool).WorkerSpec(ctx, slot)
}

func (f fleet) Restart(ctx context.Context, pool string, request api.RestartRequest) error {
	_, err := f.Pool(pool).Restart(ctx, request)
	return err
}

func (f fleet) StopPool(ctx context.Context, pool, reason string) error {
	_, err := f.Pool(pool).Stop(ctx, reason)
	return err
}

func (f fleet) Signal(ctx context.Context, pool string, slot int, signal string, control api.Control) error {
	return f.Pool(pool).Signal(ctx, slot, signal, control)
}
