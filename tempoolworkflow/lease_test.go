package tempoolworkflow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/tempoolworkflow"
)

// leasing is a workflow environment whose pool grants a lease, which is lost after a minute, unless loss is nil.
// checkins are those that it got.
func leasing(t *testing.T, loss error) (env *testsuite.TestWorkflowEnvironment, checkins *[]api.CheckinRequest) {
	env, checkins = newEnv(), new([]api.CheckinRequest)
	lease := &api.Lease{ID: "hello/3/7/1", Worker: "hello/3", Host: "far"}
	register := func(name string, f any) { env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	register(api.ActivityCheckout, func() (*api.Lease, error) { return lease, nil })
	register(api.ActivityHoldLease, func(api.Lease) error { return nil })
	register(api.ActivityCheckin, func(r api.CheckinRequest) error {
		*checkins = append(*checkins, r)
		return nil
	})
	held := 24 * time.Hour
	if loss != nil {
		held = time.Minute
	}
	env.OnActivity(api.ActivityHoldLease, *lease).Return(loss).After(held)
	return env, checkins
}

func TestALeaseIsReturnedWhateverItsUseReturns(t *testing.T) {
	for name, c := range map[string]struct {
		use     func(ctx workflow.Context, lease api.Lease) error
		outcome api.Outcome
		reason  string
	}{
		"nothing": {func(workflow.Context, api.Lease) error { return nil }, api.OutcomeOK, ""},
		"an error": {func(workflow.Context, api.Lease) error { return errors.New("bad model") }, api.OutcomeError,
			"bad model"},
		"the cancellation of the workflow": {func(ctx workflow.Context, _ api.Lease) error {
			return workflow.Sleep(ctx, time.Hour)
		}, api.OutcomeError, "canceled"},
		"that the workflow continues as new": {func(ctx workflow.Context, _ api.Lease) error {
			return workflow.NewContinueAsNewError(ctx, "again")
		}, api.OutcomeOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			env, checkins := leasing(t, nil)
			env.RegisterDelayedCallback(env.CancelWorkflow, time.Minute)
			var want error
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				return tempoolworkflow.WithLease(ctx, "hello", func(ctx workflow.Context, lease api.Lease) error {
					want = c.use(ctx, lease)
					return want
				})
			})
			require.Equal(t, want == nil, env.GetWorkflowError() == nil)
			require.Equal(t, []api.CheckinRequest{{LeaseID: "hello/3/7/1", Outcome: c.outcome, Error: c.reason}}, *checkins)
		})
	}
}

func TestCallsUnderALeaseGoToItsHost(t *testing.T) {
	env, _ := leasing(t, nil)
	env.OnActivity(api.ActivityExecute, mock.MatchedBy(func(r api.ExecuteRequest) bool {
		return r.Lease == "hello/3/7/1" && r.Method == "greet" && string(r.Params) == `{"Name":"Ada"}`
	})).Return("Hello, Ada!", nil)
	var queues []string
	env.SetOnActivityStartedListener(func(i *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if i.ActivityType.Name != api.ActivityHoldLease {
			queues = append(queues, i.ActivityType.Name+" "+i.TaskQueue)
		}
	})
	env.ExecuteWorkflow(func(ctx workflow.Context) (answer string, err error) {
		err = tempoolworkflow.WithLease(ctx, "hello", func(ctx workflow.Context, lease api.Lease) error {
			answer, err = tempoolworkflow.ExecuteUnder[string](ctx, lease, "greet", person{"Ada"})
			return err
		})
		return answer, err
	})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []string{"Checkout " + api.PoolQueue("hello"), "Execute " + api.HostQueue("far"),
		"Checkin " + api.HostQueue("far")}, queues)
}

func TestALostLeaseEndsItsUse(t *testing.T) {
	timeout := temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	for code, loss := range map[api.Code]error{
		api.CodeLeaseFenced: temporal.NewNonRetryableApplicationError("ended", string(api.CodeLeaseFenced), nil),
		api.CodeUnavailable: timeout,
	} {
		env, checkins := leasing(t, loss)
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			return tempoolworkflow.WithLease(ctx, "hello", func(ctx workflow.Context, _ api.Lease) error {
				return workflow.Sleep(ctx, 24*time.Hour)
			})
		})
		var failure *temporal.ApplicationError
		require.ErrorAs(t, env.GetWorkflowError(), &failure)
		require.Equal(t, string(code), failure.Type())
		require.Len(t, *checkins, 1)
	}
}

func TestACallThatTheLeasesHostDoesNotTakeHasACode(t *testing.T) {
	env, _ := leasing(t, nil)
	env.OnActivity(api.ActivityExecute, mock.Anything).Return("", temporal.NewTimeoutError(
		enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil, api.ExecuteProgress{Began: true}))
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		return tempoolworkflow.WithLease(ctx, "hello", func(ctx workflow.Context, lease api.Lease) error {
			_, err := tempoolworkflow.ExecuteUnder[string](ctx, lease, "greet", nil)
			return err
		})
	})
	var failure *temporal.ApplicationError
	require.ErrorAs(t, env.GetWorkflowError(), &failure)
	require.Equal(t, string(api.CodeUnavailable), failure.Type())
	var detail api.ExecuteFailure
	require.NoError(t, failure.Details(&detail))
	require.True(t, detail.Started)
}
