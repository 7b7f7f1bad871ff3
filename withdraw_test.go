package tempool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/updatelimit"
	"github.com/tempool/tempool/lifecycle"
)

func TestACheckoutWithoutAnAnswerIsWithdrawn(t *testing.T) {
	var sent, withdrawn []string // their attempts
	c := &Client{updates: updatelimit.New(), ctx: t.Context(), temporal: &fakeTemporal{
		update: func(_ context.Context, o client.UpdateWorkflowOptions) error {
			sent = append(sent, o.Args[0].(api.CheckoutRequest).AttemptID)
			return client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.DeadlineExceeded)
		},
		signal: func(workflowID, name string, message any) {
			if workflowID == api.WorkerWorkflowID("p", 0) && name == api.SignalWithdrawCheckout {
				withdrawn = append(withdrawn, message.(api.Withdrawal).AttemptID)
			}
		},
	}}
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
	}
	require.Len(t, sent, 2)
	require.NotContains(t, sent, "")
	require.Equal(t, sent, withdrawn)
}

// The server may end a request at its deadline as cancelled, and before the client's own timer.
func TestAnUpdateThatNobodyCancelledHasTimedOut(t *testing.T) {
	asked := func() {}
	c := &Client{updates: updatelimit.New(), ctx: t.Context(), temporal: &fakeTemporal{
		update: func(context.Context, client.UpdateWorkflowOptions) error {
			asked()
			return client.NewWorkflowUpdateServiceTimeoutOrCanceledError(serviceerror.NewCanceled("context canceled"))
		},
	}}
	checkout := func(ctx context.Context) error {
		_, err := c.CheckoutWorker(ctx, "p", 0, api.CheckoutRequest{Holder: "me"})
		return err
	}
	require.ErrorIs(t, checkout(t.Context()), api.ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	asked = cancel
	require.NotErrorIs(t, checkout(ctx), api.ErrUnavailable, "its caller cancelled it")
}

// It asks some workers at once, then some in pauses that double, then one every one to three seconds; and so again when
// it has tried the gateways again.
func TestAClientThatWaitsWithoutAGatewayCostsFewUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := api.PoolStatus{Pool: "p", Size: 16}
		for slot := range status.Size {
			status.Workers = append(status.Workers,
				api.RosterEntry{Slot: slot, State: lifecycle.Ready, Endpoint: "unix:/nonexistent"})
		}
		asked := 0
		c := NewClient(&fakeTemporal{
			query: func(context.Context) (any, error) { return status, nil },
			update: func(context.Context, client.UpdateWorkflowOptions) error {
				asked++
				return temporal.NewApplicationError("leased", string(api.CodeBusy))
			},
		}, "default")
		defer c.Close()
		_, err := c.Pool("p").Checkout(t.Context(), CheckoutOptions{Holder: "me", Wait: time.Minute})
		require.ErrorIs(t, err, api.ErrQueueTimeout)
		require.Greater(t, asked, 20)
		require.Less(t, asked, 80)
	})
}
