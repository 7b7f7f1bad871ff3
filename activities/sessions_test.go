package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/sessions/affinity"
	"github.com/tempool/tempool/spec"
)

// boundTo binds sessions of pool p to workers.
func boundTo(workers map[string]string) *affinity.Table {
	table := affinity.New(nil)
	for session, worker := range workers {
		table.Put("p", session, worker, func(string, bool) bool { return true })
	}
	return table
}

type hookFunc func(ctx context.Context, worker, hook, session string) (bool, error)

func (f hookFunc) CallHook(ctx context.Context, worker, hook, session string) (bool, error) {
	return f(ctx, worker, hook, session)
}

// RunActivity runs an activity, also for the tests of package activities_test. A result is optional.
func RunActivity(run, input, result any, options ...worker.Options) error {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	for _, o := range options {
		env.SetWorkerOptions(o)
	}
	env.RegisterActivityWithOptions(run, activity.RegisterOptions{Name: "run"}) // by its name, an input of any type
	value, err := env.ExecuteActivity("run", input)
	if err == nil && result != nil {
		err = value.Get(result)
	}
	return err
}

// answering accepts heartbeats.
type answering struct{}

func (answering) RecordActivityHeartbeat(context.Context, []byte, ...any) error { return nil }

// RequireNonRetryable requires that an activity failed for good with this code, and returns the failure.
func RequireNonRetryable(t *testing.T, err error, code api.Code) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(code), app.Type())
	require.True(t, app.NonRetryable())
	return app
}

func TestHooksRunInOrderAndReportTheirFailures(t *testing.T) {
	var asked []string
	answers := map[string]error{
		"bad":       api.Errorf(api.CodeWorkerError, "rejected"),
		"odd":       errors.New("unknown cause"),
		"taken":     api.Errorf(api.CodeBusy, "leased"),
		"suspended": api.Errorf(api.CodeSuspended, "a look at it"),
	}
	s := &Sessions{Temporal: answering{},
		Hooks: hookFunc(func(ctx context.Context, worker, hook, session string) (bool, error) {
			deadline, bounded := ctx.Deadline()
			require.True(t, bounded && time.Until(deadline) <= time.Minute)
			asked = append(asked, worker+" "+hook+" "+session)
			return true, answers[session]
		})}
	var result api.SessionHooksResult
	request := api.SessionHooksRequest{Worker: "p/0", Sessions: []string{"a", "bad", "b", "odd"},
		Timeout: spec.Duration(time.Minute)}
	require.NoError(t, RunActivity(s.ReleaseSessions, request, &result))
	require.Equal(t, api.SessionHooksResult{Called: 2, Failed: []api.SessionFailure{
		{Session: "bad", Code: api.CodeWorkerError, Reason: "rejected"},
		{Session: "odd", Code: api.CodeUnavailable, Reason: "unknown cause"},
	}}, result)
	require.Equal(t, []string{"p/0 session.release a", "p/0 session.release bad", "p/0 session.release b",
		"p/0 session.release odd"}, asked)

	asked, result = nil, api.SessionHooksResult{}
	request.Sessions = []string{"a", "taken", "b"}
	require.NoError(t, RunActivity(s.LoadSessions, request, &result))
	require.Len(t, asked, 2, "a leased worker is tried once")
	require.Equal(t, 1, result.Called)
	require.Equal(t, "b", result.Failed[1].Session)

	asked, result = nil, api.SessionHooksResult{}
	request.Sessions = []string{"a", "suspended", "b"}
	require.NoError(t, RunActivity(s.ReleaseSessions, request, &result))
	require.Len(t, asked, 2, "a suspended worker is tried once")
	require.Equal(t, []api.SessionFailure{
		{Session: "suspended", Code: api.CodeSuspended, Reason: "a look at it"},
		{Session: "b", Code: api.CodeSuspended, Reason: "a look at it"},
	}, result.Failed)
}

func TestAWorkerWithoutTheHookOrAProcessIsSkipped(t *testing.T) {
	calls := 0
	for _, c := range []struct {
		err  error
		gone bool
	}{{nil, false}, {api.Errorf(api.CodeWorkerNotFound, "it is not here"), true}} {
		s := &Sessions{Temporal: answering{}, Hooks: hookFunc(func(context.Context, string, string, string) (bool, error) {
			calls++
			return false, c.err
		})}
		var result api.SessionHooksResult
		require.NoError(t, RunActivity(s.ReleaseSessions,
			api.SessionHooksRequest{Sessions: []string{"a", "b"}, Timeout: spec.Duration(time.Second)}, &result))
		require.Equal(t, api.SessionHooksResult{ProcessEnded: c.gone}, result)
	}
	require.Equal(t, 2, calls)
}

func TestACancelledHookCancelsTheActivity(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &Sessions{Temporal: answering{}, Hooks: hookFunc(func(ctx context.Context, _, _, _ string) (bool, error) {
		cancel()
		<-ctx.Done()
		return true, ctx.Err()
	})}
	request := api.SessionHooksRequest{Sessions: []string{"a"}, Timeout: spec.Duration(time.Minute)}
	err := RunActivity(s.LoadSessions, request, nil, worker.Options{BackgroundActivityContext: ctx})
	require.True(t, temporal.IsCanceledError(err), "%v", err)
}

func TestSessionsAreBoundOnlyToAReadyWorker(t *testing.T) {
	table := boundTo(map[string]string{"mine": "p/0", "taken": "p/2"})
	readyChecks := 2 // checks that find a ready process
	s := &Sessions{Host: "here", Bindings: table,
		Move: func(pool, session, from, to string) bool {
			_, done := table.Put(pool, session, to, func(bound string, _ bool) bool {
				return bound == "" || bound == from
			})
			return done
		},
		HasReadyProcess: func(string) bool { readyChecks--; return readyChecks >= 0 }}
	var result api.BindSessionsResult
	request := api.BindSessionsRequest{From: "p/0", To: "p/1", Sessions: []string{"mine", "taken", "free"}}
	require.NoError(t, RunActivity(s.BindSessions, request, &result))
	require.Equal(t, map[string]int{"p/1": 2, "p/2": 1}, table.Counts("p"))
	require.Equal(t, []api.SessionFailure{{Session: "taken", Code: api.CodeSuperseded, Reason: "moved to p/2 meanwhile"}},
		result.Failed)

	RequireNonRetryable(t, RunActivity(s.BindSessions, request, nil), api.CodeWorkerNotFound)
	readyChecks = 1 // the process ends between the checks
	RequireNonRetryable(t, RunActivity(s.BindSessions, request, nil), api.CodeWorkerNotFound)
	require.Equal(t, map[string]int{"p/2": 1}, table.Counts("p"))
	RequireNonRetryable(t, RunActivity(s.BindSessions, api.BindSessionsRequest{To: "invalid name"}, nil),
		api.CodeInvalid)
}

func TestBindingsAreReportedAndRemoved(t *testing.T) {
	table := boundTo(map[string]string{"mine": "p/0", "other": "p/0"})
	table.Close("p/1", time.Hour)
	var storeErr error
	s := &Sessions{Bindings: table, SessionExists: func(context.Context, string, string) error { return storeErr }}
	var result api.SessionBindingsResult
	require.NoError(t, RunActivity(s.SessionBindings,
		api.SessionBindingsRequest{Pool: "p", Session: "mine", Worker: "p/0", After: "a", Limit: 1}, &result))
	require.Equal(t, api.SessionBindingsResult{Counts: map[string]int{"p/0": 2}, Excluded: []string{"p/1"}, Bound: "p/0",
		Page: []string{"mine"}, More: true}, result)
	for _, storeErr = range []error{api.Errorf(api.CodeSessionNotFound, "it is not there"),
		api.Errorf(api.CodeStoreUnavailable, "the store is away")} {
		var other api.SessionBindingsResult
		require.NoError(t, RunActivity(s.SessionBindings, api.SessionBindingsRequest{Pool: "p", Session: "other"}, &other))
		require.Equal(t, errors.Is(storeErr, api.ErrSessionNotFound), other.Unknown)
	}
	require.NoError(t, RunActivity(s.UnbindSessions,
		api.UnbindSessionsRequest{Worker: "p/1", Sessions: []string{"mine"}}, nil))
	require.Equal(t, "p/0", table.Where("p", "mine"))
	require.NoError(t, RunActivity(s.UnbindSessions,
		api.UnbindSessionsRequest{Worker: "p/0", Sessions: []string{"mine"}}, nil))
	require.Empty(t, table.Where("p", "mine"))
	require.NoError(t, RunActivity(s.ExcludeFromSessions,
		api.ExcludeFromSessionsRequest{Worker: "p/0", For: spec.Duration(time.Minute)}, nil))
	require.Equal(t, []string{"p/0", "p/1"}, table.Closed("p"))
	RequireNonRetryable(t, RunActivity(s.UnbindSessions, api.UnbindSessionsRequest{Worker: "invalid name"}, nil),
		api.CodeInvalid)
}

func TestTheRosterMarksWorkersThatServeAndStay(t *testing.T) {
	status := api.PoolStatus{Size: 2, Workers: []api.RosterEntry{
		{Slot: 0, State: lifecycle.Ready, Host: "a"}, {Slot: 1, State: lifecycle.Pending},
		{Slot: 2, State: lifecycle.Busy, Host: "a", Removing: true},
	}}
	var failure error
	r := &Roster{Status: func(context.Context, string) (api.PoolStatus, error) { return status, failure }}
	var result api.PoolRosterResult
	require.NoError(t, RunActivity(r.PoolRoster, api.PoolRosterRequest{Pool: "p"}, &result))
	require.Equal(t, api.PoolRosterResult{Workers: []api.RosterWorker{
		{Slot: 0, Host: "a", State: lifecycle.Ready, InService: true}, {Slot: 1, State: lifecycle.Pending},
		{Slot: 2, Host: "a", State: lifecycle.Busy},
	}}, result)
	failure = api.Errorf(api.CodePoolNotFound, "there is none")
	RequireNonRetryable(t, RunActivity(r.PoolRoster, api.PoolRosterRequest{Pool: "p"}, nil), api.CodePoolNotFound)
	failure = errors.New("away")
	var app *temporal.ApplicationError
	require.ErrorAs(t, RunActivity(r.PoolRoster, api.PoolRosterRequest{Pool: "p"}, nil), &app)
	require.False(t, app.NonRetryable())
}
