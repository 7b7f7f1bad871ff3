package tempool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
)

// errLost is that of an answer that does not arrive.
var errLost = serviceerror.NewDeadlineExceeded("lost")

// failing is a Temporal client whose first queries are answered by agents that cannot run the workflow, or lost.
func failing(errs ...error) *fakeTemporal {
	return &fakeTemporal{query: func(ctx context.Context) (any, error) {
		if len(errs) == 0 {
			return api.PoolStatus{Pool: "t", Size: 1}, nil
		}
		err := errs[0]
		errs = errs[1:]
		if err == errLost {
			<-ctx.Done()
		}
		return nil, err
	}}
}

func TestAQueryWhoseAnswerIsLostIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := &Client{temporal: failing(errLost, serviceerror.NewCanceled("at its deadline"))}
		_, err := c.Pool("t").Status(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), time.Second/2, "a view shows what has happened within a second")
	})
}

func TestAQueryIsAsPatientAsItsClient(t *testing.T) {
	for patience, succeeds := range map[time.Duration]bool{0: false, 5 * time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			c := &Client{queryTimeout: patience, temporal: failing(errLost, errLost, errLost, errLost, errLost)}
			_, err := c.Pool("t").Status(t.Context())
			require.Equal(t, succeeds, err == nil, "%v", err)
		})
	}
}

func TestAQueryThatAnOlderAgentCannotAnswerIsRepeatedAndThenSaysWhatToDo(t *testing.T) {
	older := serviceerror.NewQueryFailed("the state of this run has format 2, and this build knows formats up to 1")
	c := &Client{temporal: failing(older, older)}
	status, err := c.Pool("t").Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, status.Size)

	for name, err := range map[string]error{
		"each agent that is asked is older": older,
		"no agent can run the newest task": serviceerror.NewWorkflowNotReady("Unable to query workflow due to Workflow " +
			"Task in failed state."),
	} {
		t.Run(name, func(t *testing.T) {
			endless := make([]error, 100)
			for i := range endless {
				endless[i] = err
			}
			_, err := (&Client{temporal: failing(endless...)}).Pool("t").Status(t.Context())
			require.Equal(t, api.CodeUnavailable, api.CodeOf(err))
			require.NotContains(t, err.Error(), "timed out")
			require.ErrorContains(t, err, "older build")
		})
	}
}

// Temporal answers so after its restart, before an agent has polled.
func TestAWorkflowThatNobodyServesIsUnavailable(t *testing.T) {
	unserved := serviceerror.NewFailedPrecondition("no poller seen for task queue recently, worker may be down")
	_, err := (&Client{temporal: failing(unserved)}).Pool("t").Status(t.Context())
	require.ErrorIs(t, err, api.ErrUnavailable)
}

func TestAHostWithoutAWorkflowDoesNotExist(t *testing.T) {
	c := newClient(&fakeTemporal{update: func(context.Context, client.UpdateWorkflowOptions) error {
		return serviceerror.NewNotFound("workflow execution already completed")
	}}, "default", Options{})
	defer c.Close()
	_, err := c.DrainHost(t.Context(), "nosuch", "")
	require.EqualError(t, err, "invalid: no host nosuch; tempool hosts lists them")
	require.ErrorIs(t, c.UndrainHost(t.Context(), "nosuch"), ErrInvalid)
}
