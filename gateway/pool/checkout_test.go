package pool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// slowControl grants a lease on the one worker of pool p some time after it was asked for one, whoever waits then.
type slowControl struct {
	lease.Control
	asked    chan struct{} // gets a value with each checkout
	grant    chan struct{}
	returned chan string // leases
}

func (c *slowControl) Status(context.Context, string) (api.PoolStatus, error) {
	entry := func(slot int) api.RosterEntry {
		return api.RosterEntry{Slot: slot, State: lifecycle.Ready, Host: "there"}
	}
	return api.PoolStatus{Pool: "p", Size: 2, Workers: []api.RosterEntry{entry(0), entry(1)}}, nil
}

func (c *slowControl) Checkout(ctx context.Context, worker string, o tempool.CheckoutOptions) (*api.Lease, error) {
	c.asked <- struct{}{}
	<-c.grant
	if ctx.Err() != nil {
		return nil, ctx.Err() // the answer comes too late
	}
	_, slot, err := api.ParseWorkerName(worker)
	return &api.Lease{ID: api.LeaseID("p", slot, 1, 7), Worker: worker, Holder: o.Holder, Host: "there",
		TTLMS: time.Hour.Milliseconds()}, err
}

func (c *slowControl) CheckinNow(_ context.Context, r api.CheckinRequest) (api.CheckinResult, error) {
	c.returned <- r.LeaseID
	return api.CheckinResult{}, nil
}

// A client that leaves while its checkout is under way must not leave a lease behind that nobody knows of: when it
// expires, the process is replaced.
func TestTheLeaseOfAClientThatLeavesDuringItsCheckoutIsReturned(t *testing.T) {
	control := &slowControl{asked: make(chan struct{}, 10), grant: make(chan struct{}), returned: make(chan string, 10)}
	d, err := New(Config{HostID: "here", Control: control, Processes: noProcesses{}})
	require.NoError(t, err)
	t.Cleanup(func() {
		d.Shut()
		require.NoError(t, d.Close(context.Background()))
	})
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := d.Checkout(ctx, "p", CheckoutRequest{Holder: "me"})
		ended <- err
	}()
	<-control.asked
	leave()
	close(control.grant)
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Len(t, control.returned, 1, "the lease goes back")
	require.Empty(t, control.asked, "no other worker is asked")
}

// noProcesses is a host without any.
type noProcesses struct{}

func (noProcesses) Get(string, int64) (*process.Process, bool) { return nil, false }
func (noProcesses) List() []*process.Process                   { return nil }
