package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

func runActivity(t *testing.T, activity, input, result any) error {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(activity)
	value, err := env.ExecuteActivity(activity, input)
	if err == nil && result != nil {
		require.NoError(t, value.Get(result))
	}
	return err
}

// answering accepts heartbeats.
type answering struct{}

func (answering) RecordActivityHeartbeat(context.Context, []byte, ...any) error { return nil }

func requireNonRetryable(t *testing.T, err error, code api.Code) *temporal.ApplicationError {
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
	require.NoError(t, runActivity(t, s.ReleaseSessions, request, &result))
	require.Equal(t, api.SessionHooksResult{Called: 2, Failed: []api.SessionFailure{
		{Session: "bad", Code: api.CodeWorkerError, Reason: "rejected"},
		{Session: "odd", Code: api.CodeUnavailable, Reason: "unknown cause"},
	}}, result)
	require.Equal(t, []string{"p/0 session.release a", "p/0 session.release bad", "p/0 session.release b",
		"p/0 session.release odd"}, asked)

	asked, result = nil, api.SessionHooksResult{}
	request.Sessions = []string{"a", "taken", "b"}
	require.NoError(t, runActivity(t, s.LoadSessions, request, &result))
	require.Len(t, asked, 2, "a leased worker is tried once")
	require.Equal(t, 1, result.Called)
	require.Equal(t, "b", result.Failed[1].Session)

	asked, result = nil, api.SessionHooksResult{}
	request.Sessions = []string{"a", "suspended", "b"}
	require.NoError(t, runActivity(t, s.ReleaseSessions, request, &result))
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
		require.NoError(t, runActivity(t, s.ReleaseSessions,
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
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	env.RegisterActivity(s.LoadSessions)
	_, err := env.ExecuteActivity(s.LoadSessions,
		api.SessionHooksRequest{Sessions: []string{"a"}, Timeout: spec.Duration(time.Minute)})
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
	require.NoError(t, runActivity(t, s.BindSessions, request, &result))
	require.Equal(t, map[string]int{"p/1": 2, "p/2": 1}, table.Counts("p"))
	require.Equal(t, []api.SessionFailure{{Session: "taken", Code: api.CodeSuperseded, Reason: "moved to p/2 meanwhile"}},
		result.Failed)

	requireNonRetryable(t, runActivity(t, s.BindSessions, request, nil), api.CodeWorkerNotFound)
	readyChecks = 1 // the process ends between the checks
	requireNonRetryable(t, runActivity(t, s.BindSessions, request, nil), api.CodeWorkerNotFound)
	require.Equal(t, map[string]int{"p/2": 1}, table.Counts("p"))
	requireNonRetryable(t, runActivity(t, s.BindSessions, api.BindSessionsRequest{To: "invalid name"}, nil),
		api.CodeInvalid)
}

func TestBindingsAreReportedAndRemoved(t *testing.T) {
	table := boundTo(map[string]string{"mine": "p/0", "other": "p/0"})
	table.Close("p/1", time.Hour)
	var storeErr error
	s := &Sessions{Bindings: table, SessionExists: func(context.Context, string, string) error { return storeErr }}
	var result api.SessionBindingsResult
	require.NoError(t, runActivity(t, s.SessionBindings,
		api.SessionBindingsRequest{Pool: "p", Session: "mine", Worker: "p/0", After: "a", Limit: 1}, &result))
	require.Equal(t, api.SessionBindingsResult{Counts: map[string]int{"p/0": 2}, Excluded: []string{"p/1"}, Bound: "p/0",
		Page: []string{"mine"}, More: true}, result)
	for _, storeErr = range []error{api.Errorf(api.CodeSessionNotFound, "it is not there"),
		api.Errorf(api.CodeStoreUnavailable, "the store is away")} {
		var other api.SessionBindingsResult
		require.NoError(t, runActivity(t, s.SessionBindings, api.SessionBindingsRequest{Pool: "p", Session: "other"}, &other))
		require.Equal(t, errors.Is(storeErr, api.ErrSessionNotFound), other.Unknown)
	}
	require.NoError(t, runActivity(t, s.UnbindSessions,
		api.UnbindSessionsRequest{Worker: "p/1", Sessions: []string{"mine"}}, nil))
	require.Equal(t, "p/0", table.Where("p", "mine"))
	require.NoError(t, runActivity(t, s.UnbindSessions,
		api.UnbindSessionsRequest{Worker: "p/0", Sessions: []string{"mine"}}, nil))
	require.Empty(t, table.Where("p", "mine"))
	require.NoError(t, runActivity(t, s.ExcludeFromSessions,
		api.ExcludeFromSessionsRequest{Worker: "p/0", For: spec.Duration(time.Minute)}, nil))
	require.Equal(t, []string{"p/0", "p/1"}, table.Closed("p"))
	requireNonRetryable(t, runActivity(t, s.UnbindSessions, api.UnbindSessionsRequest{Worker: "invalid name"}, nil),
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
	require.NoError(t, runActivity(t, r.PoolRoster, api.PoolRosterRequest{Pool: "p"}, &result))
	require.Equal(t, api.PoolRosterResult{Workers: []api.RosterWorker{
		{Slot: 0, Host: "a", State: lifecycle.Ready, InService: true}, {Slot: 1, State: lifecycle.Pending},
		{Slot: 2, Host: "a", State: lifecycle.Busy},
	}}, result)
	failure = api.Errorf(api.CodePoolNotFound, "there is none")
	requireNonRetryable(t, runActivity(t, r.PoolRoster, api.PoolRosterRequest{Pool: "p"}, nil), api.CodePoolNotFound)
	failure = errors.New("away")
	var app *temporal.ApplicationError
	require.ErrorAs(t, runActivity(t, r.PoolRoster, api.PoolRosterRequest{Pool: "p"}, nil), &app)
	require.False(t, app.NonRetryable())
}
