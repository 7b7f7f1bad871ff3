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

// plane is a data plane that does with a call what a test says.
type plane func(ctx context.Context, r api.ExecuteRequest, begun func(string, int64) error) ([]byte, error)

func (p plane) Execute(ctx context.Context, _ string, r api.ExecuteRequest, placed func(), begun func(string, int64) error) ([]byte, error) {
	placed()
	placed() // as for a call that is placed again
	return p(ctx, r, begun)
}

// temporalOf takes heartbeats, answers them by reply, and keeps them.
type temporalOf struct {
	reply func(api.ExecuteProgress) error

	mu    sync.Mutex
	beats []api.ExecuteProgress
}

func newTemporal(reply func(api.ExecuteProgress) error) *temporalOf {
	return &temporalOf{reply: reply}
}

func (c *temporalOf) RecordActivityHeartbeat(_ context.Context, _ []byte, details ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	beat := *details[0].(*api.ExecuteProgress)
	c.beats = append(c.beats, beat)
	return c.reply(beat)
}

func (c *temporalOf) told() []api.ExecuteProgress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]api.ExecuteProgress(nil), c.beats...)
}

func taken(api.ExecuteProgress) error { return nil }

// perform runs Execute once; its places are counted in and out.
func perform(t *testing.T, c *temporalOf, p plane, request any, before *api.ExecuteProgress) (json.RawMessage, error) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	places := 0
	pool := &Pool{
		Name: "p", Host: "here", Executor: p, Temporal: c, Logger: slog.New(slog.DiscardHandler),
		Placed: func() func() { places++; return func() { places-- } },
	}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(pool.Execute, activity.RegisterOptions{Name: api.ActivityExecute})
	if before != nil {
		env.SetHeartbeatDetails(*before)
	}
	value, err := env.ExecuteActivity(api.ActivityExecute, request)
	require.Zero(t, places, "every place is given back")
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

func TestAFailedCallIsTypedAndTriedAgainOnlyWhereThatIsSafe(t *testing.T) {
	remote := &wire.RemoteError{Code: "odd", Type: "ValueError", Message: "so it was"}
	for name, c := range map[string]struct {
		err        error
		idempotent bool
		code       api.Code
		retried    bool
		delay      time.Duration
	}{
		"the worker's own error":        {started(api.Errorf(api.CodeWorkerError, "failed: %w", remote)), false, api.CodeWorkerError, false, 0},
		"the same of an idempotent one": {started(api.Errorf(api.CodeWorkerError, "failed: %w", remote)), true, api.CodeWorkerError, true, 0},
		"a crash in mid-call":           {started(api.Errorf(api.CodeWorkerCrashed, "gone")), false, api.CodeWorkerCrashed, false, 0},
		"a crash before it was sent":    {api.Errorf(api.CodeWorkerCrashed, "gone"), false, api.CodeWorkerCrashed, true, 0},
		"no time left":                  {started(api.Errorf(api.CodeDeadlineExceeded, "late")), false, api.CodeDeadlineExceeded, false, 0},
		"no worker":                     {api.Errorf(api.CodeNoWorkers, "none").After(time.Second), false, api.CodeNoWorkers, true, time.Second},
		"a full queue":                  {api.Errorf(api.CodeQueueFull, "full").After(time.Second), false, api.CodeQueueFull, true, time.Second},
		"too large a request":           {api.Errorf(api.CodePayloadTooLarge, "large"), true, api.CodePayloadTooLarge, false, 0},
		"a request that cannot be":      {api.Errorf(api.CodeInvalid, "odd"), true, api.CodeInvalid, false, 0},
		"an error without a code":       {errors.New("surprise"), false, api.CodeUnavailable, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := perform(t, newTemporal(taken), func(context.Context, api.ExecuteRequest, func(string, int64) error) ([]byte, error) {
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
				require.JSONEq(t, `{"code": "odd", "type": "ValueError", "message": "so it was"}`, string(detail.WorkerError))
			}
		})
	}
}

func TestTemporalKnowsThatACallBeginsBeforeItIsSent(t *testing.T) {
	c := newTemporal(taken)
	answer, err := perform(t, c, func(_ context.Context, r api.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
		require.NoError(t, begun("p/3", 7))
		require.Equal(t, []api.ExecuteProgress{{Began: true, Worker: "p/3", Incarnation: 7, Host: "here"}}, c.told())
		return r.Params, nil
	}, map[string]any{"method": "m", "params": map[string]any{"a": 1}}, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"a": 1}`, string(answer))

	t.Run("and one that says that it may be made again spares that", func(t *testing.T) {
		c := newTemporal(taken)
		_, err := perform(t, c, func(_ context.Context, _ api.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
			return nil, begun("p/3", 7)
		}, api.ExecuteRequest{Method: "m", Idempotent: true}, nil)
		require.NoError(t, err)
		require.Empty(t, c.told())
	})
	t.Run("and what it cannot be told of is not sent", func(t *testing.T) {
		_, err := perform(t, newTemporal(func(api.ExecuteProgress) error { return serviceerror.NewUnavailable("away") }),
			func(_ context.Context, _ api.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
				return nil, begun("p/3", 7)
			}, api.ExecuteRequest{Method: "m"}, nil)
		var failure *temporal.ApplicationError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, string(api.CodeUnavailable), failure.Type())
		require.False(t, failure.NonRetryable())
	})
	t.Run("and it is told when the call was not sent after all", func(t *testing.T) {
		c := newTemporal(taken)
		_, err := perform(t, c, func(_ context.Context, _ api.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
			require.NoError(t, begun("p/3", 7))
			return nil, api.Errorf(api.CodeWorkerCrashed, "it ended before")
		}, api.ExecuteRequest{Method: "m"}, nil)
		require.Error(t, err)
		told := c.told()
		require.Len(t, told, 2)
		require.False(t, told[1].Began)
	})
}

func TestAnAttemptAfterALostOneIsMadeOnlyIfNothingWasSentOrThatDoesNoHarm(t *testing.T) {
	answered := func(context.Context, api.ExecuteRequest, func(string, int64) error) ([]byte, error) {
		return []byte("1"), nil
	}
	began := &api.ExecuteProgress{Began: true, Worker: "p/3", Host: "there"}
	_, err := perform(t, newTemporal(taken), answered, api.ExecuteRequest{Method: "m"}, began)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, string(api.CodeWorkerCrashed), failure.Type())
	require.True(t, failure.NonRetryable())
	require.Contains(t, failure.Message(), "there")

	_, err = perform(t, newTemporal(taken), answered, api.ExecuteRequest{Method: "m", Idempotent: true}, began)
	require.NoError(t, err)
	_, err = perform(t, newTemporal(taken), answered, api.ExecuteRequest{Method: "m"}, &api.ExecuteProgress{Host: "there"})
	require.NoError(t, err)
}

func TestAHeartbeatsAnswerEndsACallThatNobodyWaitsFor(t *testing.T) {
	untilCancelled := func(ctx context.Context, _ api.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
		if err := begun("p/3", 7); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, started(api.Errorf(api.CodeDeadlineExceeded, "it was cancelled: %w", context.Cause(ctx)))
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
	_, err := perform(t, newTemporal(second(temporal.NewCanceledError())), untilCancelled, api.ExecuteRequest{Method: "m"}, nil)
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)

	_, err = perform(t, newTemporal(second(serviceerror.NewNotFound("closed"))), untilCancelled, api.ExecuteRequest{Method: "m"}, nil)
	require.ErrorContains(t, err, errActivityEnded.Error())

	// A Temporal that is away ends nothing: the call's own time does.
	_, err = perform(t, newTemporal(second(serviceerror.NewUnavailable("away"))), untilCancelled, api.ExecuteRequest{Method: "m", TimeoutMS: 2500}, nil)
	require.ErrorContains(t, err, context.DeadlineExceeded.Error())
}

func TestAnAnswerIsWhatTheWorkerSent(t *testing.T) {
	for name, c := range map[string]struct{ answer, encoding string }{
		"JSON": {`{"a": [1]}`, "json/plain"}, "a word": {`"yes"`, "json/plain"}, "bytes": {"\x00\xff", "binary/plain"}, "nothing": {"", "binary/null"},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := toResult([]byte(c.answer), api.ExecuteRequest{Method: "m"})
			require.NoError(t, err)
			require.Equal(t, c.encoding, string(value.Payload().GetMetadata()["encoding"]))
			require.Equal(t, c.answer, string(value.Payload().GetData()))
		})
	}
	_, err := toResult(make([]byte, maxExecuteResponse+1), api.ExecuteRequest{Method: "m", Idempotent: true})
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, string(api.CodePayloadTooLarge), failure.Type())
	require.True(t, failure.NonRetryable())
}

func TestACallEndsBeforeItsActivityDoes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	whole, _ := ctx.Deadline()
	for timeout, want := range map[time.Duration]time.Time{0: whole.Add(-time.Second), time.Hour: whole.Add(-time.Second), 10 * time.Second: time.Now().Add(10 * time.Second)} {
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
