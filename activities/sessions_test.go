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
	s := &Sessions{Temporal: answering{}, Bindings: boundTo(map[string]string{"a": "p/0", "bad": "p/0"}),
		Hooks: hookFunc(func(ctx context.Context, worker, hook, session string) (bool, error) {
			deadline, bounded := ctx.Deadline()
			require.True(t, bounded && time.Until(deadline) <= time.Minute)
			asked = append(asked, worker+" "+hook+" "+session)
			return true, answers[session]
		})}
	var result api.SessionHooksResult
	request := api.SessionHooksRequest{Worker: "p/0", Sessions: []string{"a", "bad", "b", "odd"},
		Timeout: spec.Duration(time.Minute), Unbind: true}
	require.NoError(t, RunActivity(s.ReleaseSessions, request, &result))
	require.Equal(t, api.SessionHooksResult{Called: 2, Failed: []api.SessionFailure{
		{Session: "bad", Code: api.CodeWorkerError, Reason: "rejected"},
		{Session: "odd", Code: api.CodeUnavailable, Reason: "unknown cause"},
	}}, result)
	require.Equal(t, []string{"p/0 session.release a", "p/0 session.release bad", "p/0 session.release b",
		"p/0 session.release odd"}, asked)
	require.Equal(t, "p/0", s.Bindings.Where("p", "bad"))
	require.Empty(t, s.Bindings.Where("p", "a"), "only what is released is unbound")

	asked, result = nil, api.SessionHooksResult{}
	request.Sessions = []string{"a", "taken", "b"}
	require.NoError(t, RunActivity(s.ReleaseSessions, request, &result))
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
	for _, failure := range []error{nil, api.Errorf(api.CodeWorkerNotFound, "it is not here")} {
		s := &Sessions{Temporal: answering{}, Hooks: hookFunc(func(context.Context, string, string, string) (bool, error) {
			calls++
			return false, failure
		})}
		var result api.SessionHooksResult
		require.NoError(t, RunActivity(s.ReleaseSessions,
			api.SessionHooksRequest{Sessions: []string{"a", "b"}, Timeout: spec.Duration(time.Second)}, &result))
		require.Equal(t, api.SessionHooksResult{}, result)
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
	err := RunActivity(s.ReleaseSessions, request, nil, worker.Options{BackgroundActivityContext: ctx})
	require.True(t, temporal.IsCanceledError(err), "%v", err)
}

func TestOnlyAReadyWorkerReceivesSessions(t *testing.T) {
	table := boundTo(map[string]string{"mine": "p/0", "taken": "p/2"})
	readyChecks := 2 // checks that find a ready process
	var loaded []string
	hookErr := api.Errorf(api.CodeWorkerError, "rejected")
	s := &Sessions{Host: "here", Bindings: table, Temporal: answering{},
		Hooks: hookFunc(func(_ context.Context, worker, hook, session string) (bool, error) {
			loaded = append(loaded, worker+" "+hook+" "+session)
			return true, hookErr
		}),
		Move: func(pool, session, from, to string) bool {
			_, done := table.Put(pool, session, to, func(bound string, _ bool) bool {
				return bound == "" || bound == from || bound == to
			})
			return done
		},
		HasReadyProcess: func(string) bool { readyChecks--; return readyChecks >= 0 }}
	var result api.SessionHooksResult
	request := api.SessionHooksRequest{Worker: "p/1", From: "p/0", Sessions: []string{"mine", "taken", "free"},
		Timeout: spec.Duration(time.Minute)}
	require.NoError(t, RunActivity(s.ReceiveSessions, request, &result))
	require.Equal(t, map[string]int{"p/1": 2, "p/2": 1}, table.Counts("p"))
	require.Equal(t, []api.SessionFailure{
		{Session: "taken", Code: api.CodeSuperseded, Reason: "moved to p/2 meanwhile"},
		{Session: "mine", Code: api.CodeWorkerError, Reason: "rejected"},
		{Session: "free", Code: api.CodeWorkerError, Reason: "rejected"},
	}, result.Failed)
	require.Equal(t, []string{"p/1 session.load mine", "p/1 session.load free"}, loaded)

	RequireNonRetryable(t, RunActivity(s.ReceiveSessions, request, nil), api.CodeWorkerNotFound)
	readyChecks, hookErr = 2, api.Errorf(api.CodeWorkerNotFound, "it has ended")
	ended := RequireNonRetryable(t, RunActivity(s.ReceiveSessions, request, nil), api.CodeWorkerNotFound)
	require.ErrorContains(t, ended, "ended before it could load sessions")
	readyChecks, loaded = 1, nil // the process ends between the checks
	RequireNonRetryable(t, RunActivity(s.ReceiveSessions, request, nil), api.CodeWorkerNotFound)
	require.Equal(t, map[string]int{"p/2": 1}, table.Counts("p"))
	readyChecks, request.Timeout = 2, 0
	require.NoError(t, RunActivity(s.ReceiveSessions, request, nil))
	require.Equal(t, map[string]int{"p/1": 2, "p/2": 1}, table.Counts("p"))
	require.Empty(t, loaded)
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
	for _, worker := range []string{"p/1", "p/0"} {
		require.Equal(t, "p/0", table.Where("p", "mine"))
		require.NoError(t, RunActivity(s.ReleaseSessions,
			api.SessionHooksRequest{Worker: worker, Sessions: []string{"mine"}, Unbind: true}, nil))
	}
	require.Empty(t, table.Where("p", "mine"))
	require.NoError(t, RunActivity(s.ExcludeFromSessions,
		api.ExcludeFromSessionsRequest{Worker: "p/0", For: spec.Duration(time.Minute)}, nil))
	require.Equal(t, []string{"p/0", "p/1"}, table.Closed("p"))
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
