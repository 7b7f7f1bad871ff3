package tempool

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/updatelimit"
	"github.com/tempool/tempool/lifecycle"
)

// silentTemporal is a Temporal client that does not answer updates in time.
type silentTemporal struct {
	client.Client
	cause     error  // DeadlineExceeded if nil
	asked     func() // called by each update if not nil
	sent      []api.CheckoutRequest
	withdrawn []api.Withdrawal
}

func (s *silentTemporal) UpdateWorkflow(_ context.Context,
	o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	s.sent = append(s.sent, o.Args[0].(api.CheckoutRequest))
	if s.asked != nil {
		s.asked()
	}
	return nil, client.NewWorkflowUpdateServiceTimeoutOrCanceledError(cmp.Or(s.cause, context.DeadlineExceeded))
}

func (s *silentTemporal) SignalWorkflow(_ context.Context, workflowID, _, name string, message any) error {
	if workflowID == api.WorkerWorkflowID("p", 0) && name == api.SignalWithdrawCheckout {
		s.withdrawn = append(s.withdrawn, message.(api.Withdrawal))
	}
	return nil
}

func TestACheckoutWithoutAnAnswerIsWithdrawn(t *testing.T) {
	temporal := &silentTemporal{}
	c := &Client{temporal: temporal, updates: updatelimit.New(), ctx: t.Context()}
	for _, checkout := range []func() error{
		func() error {
			_, err := c.Pool("p").CheckoutOnce(t.Context(), 0, CheckoutOptions{Holder: "me"})
			return err
		},
		func() error {
			_, err := c.CheckoutWorker(t.Context(), "p", 0, api.CheckoutRequest{AttemptID: "one", Holder: "pool/p"})
			return err
		},
	} {
		require.Error(t, checkout())
		c.background.Wait()
		last := temporal.sent[len(temporal.sent)-1]
		require.NotEmpty(t, last.AttemptID)
		require.Equal(t, api.Withdrawal{AttemptID: last.AttemptID}, temporal.withdrawn[len(temporal.withdrawn)-1])
	}
	require.Len(t, temporal.sent, 2)
	require.Len(t, temporal.withdrawn, 2)
}

// The server may end a request at its deadline as cancelled, and before the client's own timer.
func TestAWorkflowThatNobodyServesIsUnavailable(t *testing.T) {
	c := &Client{temporal: unservedTemporal{}}
	_, err := c.Pool("p").Status(t.Context())
	require.ErrorIs(t, err, api.ErrUnavailable)
}

// unservedTemporal answers like Temporal after its restart, before an agent has polled.
type unservedTemporal struct{ client.Client }

func (unservedTemporal) QueryWorkflowWithOptions(context.Context,
	*client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	return nil, serviceerror.NewFailedPrecondition("no poller seen for task queue recently, worker may be down")
}

func TestAnUpdateThatNobodyCancelledHasTimedOut(t *testing.T) {
	temporal := &silentTemporal{cause: serviceerror.NewCanceled("context canceled")}
	c := &Client{temporal: temporal, updates: updatelimit.New(), ctx: t.Context()}
	checkout := func(ctx context.Context) error {
		_, err := c.CheckoutWorker(ctx, "p", 0, api.CheckoutRequest{Holder: "me"})
		return err
	}
	require.ErrorIs(t, checkout(t.Context()), api.ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	temporal.asked = cancel
	require.NotErrorIs(t, checkout(ctx), api.ErrUnavailable, "its caller cancelled it")
}

// busyWorkers is a Temporal client of a pool whose workers refuse every checkout, and whose gateway does not answer.
type busyWorkers struct {
	client.Client
	asked int
}

func (b *busyWorkers) QueryWorkflowWithOptions(context.Context,
	*client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	status := api.PoolStatus{Pool: "p", Size: 16}
	for slot := range status.Size {
		status.Workers = append(status.Workers,
			api.RosterEntry{Slot: slot, State: lifecycle.Ready, Endpoint: "unix:/nonexistent"})
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(status)
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

func (b *busyWorkers) UpdateWorkflow(context.Context,
	client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	b.asked++
	return nil, temporal.NewApplicationError("leased", string(api.CodeBusy))
}

// It asks some workers at once, then some in pauses that double, then one every one to three seconds; and so again when
// it has tried the gateways again.
func TestAClientThatWaitsWithoutAGatewayCostsFewUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &busyWorkers{}
		c := NewClient(busy, "default")
		defer c.Close()
		_, err := c.Pool("p").Checkout(t.Context(), CheckoutOptions{Holder: "me", Wait: time.Minute})
		require.ErrorIs(t, err, api.ErrQueueTimeout)
		require.Greater(t, busy.asked, 20)
		require.Less(t, busy.asked, 80)
	})
}
