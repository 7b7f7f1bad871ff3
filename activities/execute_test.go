package activities

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// fakeExecutor is a data plane whose calls a test answers.
type fakeExecutor func(ctx context.Context, r api.ExecuteRequest, begun func(string, int64) error) ([]byte, error)

func (p fakeExecutor) Execute(ctx context.Context, _ string, r api.ExecuteRequest, placed func(),
	begun func(string, int64) error) ([]byte, error) {
	placed()
	placed() // as for a call that the data plane places again
	return p(ctx, r, begun)
}

// fakeTemporal records heartbeats and answers them with reply.
type fakeTemporal struct {
	reply func(api.ExecuteProgress) error

	mu         sync.Mutex
	heartbeats []api.ExecuteProgress
}

func (c *fakeTemporal) RecordActivityHeartbeat(_ context.Context, _ []byte, details ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	progress := *details[0].(*api.ExecuteProgress)
	c.heartbeats = append(c.heartbeats, progress)
	return c.reply(progress)
}

func (c *fakeTemporal) recorded() []api.ExecuteProgress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]api.ExecuteProgress(nil), c.heartbeats...)
}

func accept(api.ExecuteProgress) error { return nil }

// execute runs Execute once, and checks that the activity released every call that it placed.
func execute(t *testing.T, c *fakeTemporal, p fakeExecutor, request any,
	previous *api.ExecuteProgress) (json.RawMessage, error) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	placed := 0
	pool := &Pool{
		Name: "p", Host: "here", Executor: p, Temporal: c, Logger: slog.New(slog.DiscardHandler),
		Placed: func() func() { placed++; return func() { placed-- } },
	}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(pool.Execute, activity.RegisterOptions{Name: api.ActivityExecute})
	if previous != nil {
		env.SetHeartbeatDetails(*previous)
	}
	value, err := env.ExecuteActivity(api.ActivityExecute, request)
	require.Zero(t, placed)
	if err != nil {
		return nil, err
	}
	var answer json.RawMessage
	if value.HasValue() {
		require.NoError(t, value.Get(&answer))
	}
	return answer, nil
}

func started(e *api.Error) *api.Error {
	e.Started = true
	return e
}

func TestAFailedCallIsTypedAndRetriedOnlyWhenSafe(t *testing.T) {
	remote := &wire.RemoteError{Code: "odd", Type: "ValueError", Message: "broken"}
	for name, c := range map[string]struct {
		err        error
		idempotent bool
		code       api.Code
		retried    bool
		delay      time.Duration
	}{
		"an error of the worker": {started(api.Errorf(api.CodeWorkerError, "failed: %w", remote)), false,
			api.CodeWorkerError, false, 0},
		"the same, idempotent": {started(api.Errorf(api.CodeWorkerError, "failed: %w", remote)), true,
			api.CodeWorkerError, true, 0},
		"a crash in mid-call": {started(api.Errorf(api.CodeWorkerCrashed, "gone")), false, api.CodeWorkerCrashed,
			false, 0},
		"a crash before it was sent": {api.Errorf(api.CodeWorkerCrashed, "gone"), false, api.CodeWorkerCrashed, true, 0},
		"no time left": {started(api.Errorf(api.CodeDeadlineExceeded, "late")), false, api.CodeDeadlineExceeded,
			false, 0},
		"no worker": {api.Errorf(api.CodeNoWorkers, "none").After(time.Second), false, api.CodeNoWorkers,
			true, time.Second},
		"a full queue": {api.Errorf(api.CodeQueueFull, "full").After(time.Second), false, api.CodeQueueFull,
			true, time.Second},
		"request too large":       {api.Errorf(api.CodePayloadTooLarge, "large"), true, api.CodePayloadTooLarge, false, 0},
		"an invalid request":      {api.Errorf(api.CodeInvalid, "odd"), true, api.CodeInvalid, false, 0},
		"a pool with keys":        {api.Errorf(api.CodeKeyRequired, "whose?"), true, api.CodeKeyRequired, false, 0},
		"an error without a code": {errors.New("unexpected"), false, api.CodeUnavailable, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, &fakeTemporal{reply: accept},
				func(context.Context, api.ExecuteRequest, func(string, int64) error) ([]byte, error) {
					return nil, c.err
				},
				api.ExecuteRequest{Method: "m", Idempotent: c.idempotent}, nil)
			var failure *temporal.ApplicationError
			require.ErrorAs(t, err, &failure)
			require.Equal(t, string(c.code), failure.Type())
			require.Equal(t, c.retried, !failure.NonRetryable())
			require.Equal(t, c.delay, failure.NextRetryDelay())
			var detail api.ExecuteFailure
			require.NoError(t, failure.Details(&detail))
			require.Equal(t, mayHaveStarted(c.err), detail.Started)
			if c.code == api.CodeWorkerError {
				require.JSONEq(t, `{"code": "odd", "type": "ValueError", "message": "broken"}`, string(detail.WorkerError))
			}
		})
	}
}

func TestACallUnderALeaseGoesToItsHostAndEndsWithTheLease(t *testing.T) {
	call := func(p fakeExecutor, pool, lease string) error {
		activities := &Pool{Name: pool, Executor: p, Temporal: &fakeTemporal{reply: accept},
			Logger: slog.New(slog.DiscardHandler), Placed: func() func() { return func() {} }}
		return RunActivity(activities.Execute, api.ExecuteRequest{Method: "m", Lease: lease}, nil)
	}
	for pool, lease := range map[string]string{"p": "p/0/1/1", "": ""} {
		RequireNonRetryable(t, call(nil, pool, lease), api.CodeInvalid)
	}
	err := call(func(context.Context, api.ExecuteRequest, func(string, int64) error) ([]byte, error) {
		return nil, api.Errorf(api.CodeLeaseFenced, "ended")
	}, "", "p/0/1/1")
	RequireNonRetryable(t, err, api.CodeLeaseFenced) // another attempt would be refused, too
}

func TestTheStartOfACallIsRecordedBeforeItIsSent(t *testing.T) {
	c := &fakeTemporal{reply: accept}
	answer, err := execute(t, c, func(_ context.Context, r api.ExecuteRequest,
		begun func(string, int64) error) ([]byte, error) {
		require.NoError(t, begun("p/3", 7))
		require.Equal(t, []api.ExecuteProgress{{Began: true, Worker: "p/3", Incarnation: 7, Host: "here"}}, c.recorded())
		return r.Params, nil
	}, map[string]any{"method": "m", "params": map[string]any{"a": 1}}, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"a": 1}`, string(answer))

	begins := func(_ context.Context, _ api.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
		return nil, begun("p/3", 7)
	}
	t.Run("an idempotent call is not recorded", func(t *testing.T) {
		c := &fakeTemporal{reply: accept}
		_, err := execute(t, c, begins, api.ExecuteRequest{Method: "m", Idempotent: true}, nil)
		require.NoError(t, err)
		require.Empty(t, c.recorded())
	})
	t.Run("a call whose start cannot be recorded is not sent", func(t *testing.T) {
		away := func(api.ExecuteProgress) error { return serviceerror.NewUnavailable("away") }
		_, err := execute(t, &fakeTemporal{reply: away}, begins, api.ExecuteRequest{Method: "m"}, nil)
		var failure *temporal.ApplicationError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, string(api.CodeUnavailable), failure.Type())
		require.False(t, failure.NonRetryable())
	})
	t.Run("a call that was not sent is retracted", func(t *testing.T) {
		c := &fakeTemporal{reply: accept}
		_, err := execute(t, c, func(_ context.Context, _ api.ExecuteRequest,
			begun func(string, int64) error) ([]byte, error) {
			require.NoError(t, begun("p/3", 7))
			return nil, api.Errorf(api.CodeWorkerCrashed, "exited before the request was sent")
		}, api.ExecuteRequest{Method: "m"}, nil)
		require.Error(t, err)
		recorded := c.recorded()
		require.Len(t, recorded, 2)
		require.False(t, recorded[1].Began)
	})
}

func TestAfterALostAttemptOnlyUnsentOrIdempotentCallsAreRetried(t *testing.T) {
	answered := func(context.Context, api.ExecuteRequest, func(string, int64) error) ([]byte, error) {
		return []byte("1"), nil
	}
	began := &api.ExecuteProgress{Began: true, Worker: "p/3", Host: "there"}
	_, err := execute(t, &fakeTemporal{reply: accept}, answered, api.ExecuteRequest{Method: "m"}, began)
	require.Contains(t, RequireNonRetryable(t, err, api.CodeWorkerCrashed).Message(), "there")

	_, err = execute(t, &fakeTemporal{reply: accept}, answered, api.ExecuteRequest{Method: "m", Idempotent: true}, began)
	require.NoError(t, err)
	_, err = execute(t, &fakeTemporal{reply: accept}, answered, api.ExecuteRequest{Method: "m"},
		&api.ExecuteProgress{Host: "there"})
	require.NoError(t, err)
}

func TestACallEndsWhenAHeartbeatSaysThatItsActivityEnded(t *testing.T) {
	untilCancelled := func(ctx context.Context, _ api.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
		if err := begun("p/3", 7); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, started(api.Errorf(api.CodeDeadlineExceeded, "cancelled: %w", context.Cause(ctx)))
	}
	second := func(reply error) func(api.ExecuteProgress) error {
		n := 0
		return func(api.ExecuteProgress) error {
			if n++; n < 2 {
				return nil
			}
			return reply
		}
	}
	_, err := execute(t, &fakeTemporal{reply: second(temporal.NewCanceledError())}, untilCancelled,
		api.ExecuteRequest{Method: "m"}, nil)
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)

	_, err = execute(t, &fakeTemporal{reply: second(serviceerror.NewNotFound("closed"))}, untilCancelled,
		api.ExecuteRequest{Method: "m"}, nil)
	require.ErrorContains(t, err, errActivityEnded.Error())

	// While Temporal is unavailable, only the call's own timeout ends it.
	_, err = execute(t, &fakeTemporal{reply: second(serviceerror.NewUnavailable("away"))}, untilCancelled,
		api.ExecuteRequest{Method: "m", TimeoutMS: 2500}, nil)
	require.ErrorContains(t, err, context.DeadlineExceeded.Error())
}

func TestTheResultIsTheWorkersResponse(t *testing.T) {
	for name, c := range map[string]struct{ answer, encoding string }{
		"JSON": {`{"a": [1]}`, "json/plain"}, "a word": {`"yes"`, "json/plain"}, "bytes": {"\x00\xff", "binary/plain"},
		"nothing": {"", "binary/null"},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := toResult([]byte(c.answer), api.ExecuteRequest{Method: "m"})
			require.NoError(t, err)
			require.Equal(t, c.encoding, string(value.Payload().GetMetadata()["encoding"]))
			require.Equal(t, c.answer, string(value.Payload().GetData()))
		})
	}
	_, err := toResult(make([]byte, maxExecuteResponse+1), api.ExecuteRequest{Method: "m", Idempotent: true})
	RequireNonRetryable(t, err, api.CodePayloadTooLarge)
}

func TestACallEndsBeforeItsActivity(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	activityEnd, _ := ctx.Deadline()
	for timeout, want := range map[time.Duration]time.Time{0: activityEnd.Add(-time.Second),
		time.Hour: activityEnd.Add(-time.Second), 10 * time.Second: time.Now().Add(10 * time.Second)} {
		bounded, end := withCallDeadline(ctx, timeout)
		got, has := bounded.Deadline()
		end()
		require.True(t, has)
		require.WithinDuration(t, want, got, 5*time.Second)
	}
	free, end := withCallDeadline(t.Context(), 0)
	defer end()
	_, has := free.Deadline()
	require.False(t, has)
}
