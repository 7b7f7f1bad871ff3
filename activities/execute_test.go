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

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/process/wire"
)

// plane is a data plane that does with a call what a test says.
type plane func(ctx context.Context, r tempool.ExecuteRequest, begun func(string, int64) error) ([]byte, error)

func (p plane) Execute(ctx context.Context, _ string, r tempool.ExecuteRequest, placed func(), begun func(string, int64) error) ([]byte, error) {
	placed()
	placed() // as for a call that is placed again
	return p(ctx, r, begun)
}

// temporalOf takes heartbeats, answers them by reply, and keeps them.
type temporalOf struct {
	reply func(tempool.ExecuteProgress) error

	mu    sync.Mutex
	beats []tempool.ExecuteProgress
}

func newTemporal(reply func(tempool.ExecuteProgress) error) *temporalOf {
	return &temporalOf{reply: reply}
}

func (c *temporalOf) RecordActivityHeartbeat(_ context.Context, _ []byte, details ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	beat := *details[0].(*tempool.ExecuteProgress)
	c.beats = append(c.beats, beat)
	return c.reply(beat)
}

func (c *temporalOf) told() []tempool.ExecuteProgress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]tempool.ExecuteProgress(nil), c.beats...)
}

func taken(tempool.ExecuteProgress) error { return nil }

// perform runs Execute once; its places are counted in and out.
func perform(t *testing.T, c *temporalOf, p plane, request any, before *tempool.ExecuteProgress) (json.RawMessage, error) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	places := 0
	pool := &Pool{
		Name: "p", Host: "here", Plane: p, Temporal: c, Logger: slog.New(slog.DiscardHandler),
		Placed: func() func() { places++; return func() { places-- } },
	}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(pool.Execute, activity.RegisterOptions{Name: tempool.ActivityExecute})
	if before != nil {
		env.SetHeartbeatDetails(*before)
	}
	value, err := env.ExecuteActivity(tempool.ActivityExecute, request)
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

func started(e *tempool.Error) *tempool.Error {
	e.Started = true
	return e
}

func TestAFailedCallIsTypedAndTriedAgainOnlyWhereThatIsSafe(t *testing.T) {
	remote := &wire.RemoteError{Code: "odd", Type: "ValueError", Message: "so it was"}
	for name, c := range map[string]struct {
		err        error
		idempotent bool
		code       tempool.Code
		retried    bool
		delay      time.Duration
	}{
		"the worker's own error":        {started(tempool.Errorf(tempool.CodeWorkerError, "failed: %w", remote)), false, tempool.CodeWorkerError, false, 0},
		"the same of an idempotent one": {started(tempool.Errorf(tempool.CodeWorkerError, "failed: %w", remote)), true, tempool.CodeWorkerError, true, 0},
		"a crash in mid-call":           {started(tempool.Errorf(tempool.CodeWorkerCrashed, "gone")), false, tempool.CodeWorkerCrashed, false, 0},
		"a crash before it was sent":    {tempool.Errorf(tempool.CodeWorkerCrashed, "gone"), false, tempool.CodeWorkerCrashed, true, 0},
		"no time left":                  {started(tempool.Errorf(tempool.CodeDeadlineExceeded, "late")), false, tempool.CodeDeadlineExceeded, false, 0},
		"no worker":                     {tempool.Errorf(tempool.CodeNoWorkers, "none").After(time.Second), false, tempool.CodeNoWorkers, true, time.Second},
		"a full queue":                  {tempool.Errorf(tempool.CodeQueueFull, "full").After(time.Second), false, tempool.CodeQueueFull, true, time.Second},
		"too large a request":           {tempool.Errorf(tempool.CodePayloadTooLarge, "large"), true, tempool.CodePayloadTooLarge, false, 0},
		"a request that cannot be":      {tempool.Errorf(tempool.CodeInvalid, "odd"), true, tempool.CodeInvalid, false, 0},
		"an error without a code":       {errors.New("surprise"), false, tempool.CodeUnavailable, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := perform(t, newTemporal(taken), func(context.Context, tempool.ExecuteRequest, func(string, int64) error) ([]byte, error) {
				return nil, c.err
			},
				tempool.ExecuteRequest{Method: "m", Idempotent: c.idempotent}, nil)
			var failure *temporal.ApplicationError
			require.ErrorAs(t, err, &failure)
			require.Equal(t, string(c.code), failure.Type())
			require.Equal(t, c.retried, !failure.NonRetryable())
			require.Equal(t, c.delay, failure.NextRetryDelay())
			var detail tempool.ExecuteFailure
			require.NoError(t, failure.Details(&detail))
			require.Equal(t, mayHaveStarted(c.err), detail.Started)
			if c.code == tempool.CodeWorkerError {
				require.JSONEq(t, `{"code": "odd", "type": "ValueError", "message": "so it was"}`, string(detail.WorkerError))
			}
		})
	}
}

func TestTemporalKnowsThatACallBeginsBeforeItIsSent(t *testing.T) {
	c := newTemporal(taken)
	answer, err := perform(t, c, func(_ context.Context, r tempool.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
		require.NoError(t, begun("p/3", 7))
		require.Equal(t, []tempool.ExecuteProgress{{Began: true, Worker: "p/3", Incarnation: 7, Host: "here"}}, c.told())
		return r.Params, nil
	}, map[string]any{"method": "m", "params": map[string]any{"a": 1}}, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"a": 1}`, string(answer))

	t.Run("and one that says that it may be made again spares that", func(t *testing.T) {
		c := newTemporal(taken)
		_, err := perform(t, c, func(_ context.Context, _ tempool.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
			return nil, begun("p/3", 7)
		}, tempool.ExecuteRequest{Method: "m", Idempotent: true}, nil)
		require.NoError(t, err)
		require.Empty(t, c.told())
	})
	t.Run("and what it cannot be told of is not sent", func(t *testing.T) {
		_, err := perform(t, newTemporal(func(tempool.ExecuteProgress) error { return serviceerror.NewUnavailable("away") }),
			func(_ context.Context, _ tempool.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
				return nil, begun("p/3", 7)
			}, tempool.ExecuteRequest{Method: "m"}, nil)
		var failure *temporal.ApplicationError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, string(tempool.CodeUnavailable), failure.Type())
		require.False(t, failure.NonRetryable())
	})
	t.Run("and it is told when the call was not sent after all", func(t *testing.T) {
		c := newTemporal(taken)
		_, err := perform(t, c, func(_ context.Context, _ tempool.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
			require.NoError(t, begun("p/3", 7))
			return nil, tempool.Errorf(tempool.CodeWorkerCrashed, "it ended before")
		}, tempool.ExecuteRequest{Method: "m"}, nil)
		require.Error(t, err)
		told := c.told()
		require.Len(t, told, 2)
		require.False(t, told[1].Began)
	})
}

func TestAnAttemptAfterALostOneIsMadeOnlyIfNothingWasSentOrThatDoesNoHarm(t *testing.T) {
	answered := func(context.Context, tempool.ExecuteRequest, func(string, int64) error) ([]byte, error) {
		return []byte("1"), nil
	}
	began := &tempool.ExecuteProgress{Began: true, Worker: "p/3", Host: "there"}
	_, err := perform(t, newTemporal(taken), answered, tempool.ExecuteRequest{Method: "m"}, began)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, string(tempool.CodeWorkerCrashed), failure.Type())
	require.True(t, failure.NonRetryable())
	require.Contains(t, failure.Message(), "there")

	_, err = perform(t, newTemporal(taken), answered, tempool.ExecuteRequest{Method: "m", Idempotent: true}, began)
	require.NoError(t, err)
	_, err = perform(t, newTemporal(taken), answered, tempool.ExecuteRequest{Method: "m"}, &tempool.ExecuteProgress{Host: "there"})
	require.NoError(t, err)
}

func TestAHeartbeatsAnswerEndsACallThatNobodyWaitsFor(t *testing.T) {
	untilCancelled := func(ctx context.Context, _ tempool.ExecuteRequest, begun func(string, int64) error) ([]byte, error) {
		if err := begun("p/3", 7); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, started(tempool.Errorf(tempool.CodeDeadlineExceeded, "it was cancelled: %w", context.Cause(ctx)))
	}
	second := func(reply error) func(tempool.ExecuteProgress) error {
		n := 0
		return func(tempool.ExecuteProgress) error {
			if n++; n < 2 {
				return nil
			}
			return reply
		}
	}
	_, err := perform(t, newTemporal(second(temporal.NewCanceledError())), untilCancelled, tempool.ExecuteRequest{Method: "m"}, nil)
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)

	_, err = perform(t, newTemporal(second(serviceerror.NewNotFound("closed"))), untilCancelled, tempool.ExecuteRequest{Method: "m"}, nil)
	require.ErrorContains(t, err, errActivityOver.Error())

	// A Temporal that is away ends nothing: the call's own time does.
	_, err = perform(t, newTemporal(second(serviceerror.NewUnavailable("away"))), untilCancelled, tempool.ExecuteRequest{Method: "m", TimeoutMS: 2500}, nil)
	require.ErrorContains(t, err, context.DeadlineExceeded.Error())
}

func TestAnAnswerIsWhatTheWorkerSent(t *testing.T) {
	for name, c := range map[string]struct{ answer, encoding string }{
		"JSON": {`{"a": [1]}`, "json/plain"}, "a word": {`"yes"`, "json/plain"}, "bytes": {"\x00\xff", "binary/plain"}, "nothing": {"", "binary/null"},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := answerOf([]byte(c.answer), tempool.ExecuteRequest{Method: "m"})
			require.NoError(t, err)
			require.Equal(t, c.encoding, string(value.Payload().GetMetadata()["encoding"]))
			require.Equal(t, c.answer, string(value.Payload().GetData()))
		})
	}
	_, err := answerOf(make([]byte, maxExecuteAnswer+1), tempool.ExecuteRequest{Method: "m", Idempotent: true})
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, string(tempool.CodePayloadTooLarge), failure.Type())
	require.True(t, failure.NonRetryable())
}

func TestACallEndsBeforeItsActivityDoes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	whole, _ := ctx.Deadline()
	for timeout, want := range map[time.Duration]time.Time{0: whole.Add(-time.Second), time.Hour: whole.Add(-time.Second), 10 * time.Second: time.Now().Add(10 * time.Second)} {
		bounded, end := withinActivity(ctx, timeout)
		got, has := bounded.Deadline()
		end()
		require.True(t, has)
		require.WithinDuration(t, want, got, 5*time.Second)
	}
	free, end := withinActivity(t.Context(), 0)
	defer end()
	_, has := free.Deadline()
	require.False(t, has)
}
