package activities

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// Executor is what Execute needs of the data plane.
type Executor interface {
	// Execute runs a call on a worker of the pool under a lease of the data plane's own. It calls placed when the call has a place, in the
	// queue or on a worker, and begun before the request is sent; begun's error keeps it from being sent.
	Execute(ctx context.Context, pool string, r api.ExecuteRequest, placed func(), begun func(worker string, incarnation int64) error) ([]byte, error)
}

// Pool holds the activity Execute of one pool on one host.
type Pool struct {
	Name, Host string
	Executor   Executor
	// Temporal takes the heartbeats: unlike those of the SDK's own, their failures are seen, and end no call.
	Temporal Heartbeats
	// Placed is told when a call has its place in the data plane; the function it returns is called when the activity ends.
	Placed func() (ended func())
	Logger *slog.Logger
}

const (
	// maxCallHeartbeatInterval is the longest between two heartbeats of a call, and so about the longest until a cancellation is noticed.
	maxCallHeartbeatInterval = 2 * time.Second
	// callHeartbeatTimeout bounds one heartbeat.
	callHeartbeatTimeout = 5 * time.Second
	// maxExecuteResponse is the largest answer that Temporal takes by default, less some room for what is around it.
	maxExecuteResponse = 2<<20 - 16<<10
)

// Execute makes one call. Failures are ApplicationErrors whose type is a code and whose detail is an ExecuteFailure. They are
// retried by the activity's policy unless the worker may have seen the request, or no retry can succeed.
func (p *Pool) Execute(ctx context.Context, input converter.RawValue) (converter.RawValue, error) {
	request, err := api.ParseExecuteRequest(input.Payload().GetData())
	if err != nil {
		return converter.RawValue{}, executeFailure(err, request)
	}
	if lost := previousAttemptLost(ctx); lost != nil && !request.Idempotent {
		return converter.RawValue{}, executeFailure(lost, request)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, expire := withCallDeadline(ctx, time.Duration(request.TimeoutMS)*time.Millisecond)
	defer expire()
	pulse := newCallHeartbeat(ctx, p, cancel)
	answer, err := p.call(ctx, request, pulse)
	pulse.stop()
	switch {
	case err == nil:
		return toResult(answer, request)
	case errors.Is(context.Cause(ctx), errCancelRequested):
		return converter.RawValue{}, temporal.NewCanceledError(err.Error())
	case errors.Is(context.Cause(ctx), context.Canceled):
		stopping := api.Errorf(api.CodeUnavailable, "the agent of host %s stops and had no more time for the call: %w", p.Host, err)
		stopping.Started = mayHaveStarted(err)
		err = stopping
	}
	if !mayHaveStarted(err) && pulse.beginRecorded.Load() { // the next attempt has to know that this one never reached a worker
		pulse.retract()
	}
	return converter.RawValue{}, executeFailure(err, request)
}

func (p *Pool) call(ctx context.Context, request api.ExecuteRequest, pulse *callHeartbeat) ([]byte, error) {
	var ended func()
	defer func() {
		if ended != nil {
			ended()
		}
	}()
	placed := func() {
		if ended == nil { // a call whose worker ended before it was sent is placed again
			ended = p.Placed()
		}
	}
	return p.Executor.Execute(ctx, p.Name, request, placed, func(worker string, incarnation int64) error {
		return pulse.begin(api.ExecuteProgress{Began: true, Worker: worker, Incarnation: incarnation, Host: p.Host}, request.Idempotent)
	})
}

// previousAttemptLost is the failure of a call whose former attempt was not heard of again after its request may have been sent.
func previousAttemptLost(ctx context.Context) error {
	var before api.ExecuteProgress
	if !activity.HasHeartbeatDetails(ctx) || activity.GetHeartbeatDetails(ctx, &before) != nil || !before.Began {
		return nil
	}
	lost := api.Errorf(api.CodeWorkerCrashed,
		"the agent of host %s was lost while %s served the call; whether it was carried out is not known (say idempotent to have such a call made again)", before.Host, before.Worker)
	lost.Started = true
	return lost
}

// withCallDeadline bounds a call by timeout and ends it a little before the activity's own time is up, so that the caller learns
// from the call's own error what happened.
func withCallDeadline(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	if bounded {
		left := time.Until(deadline)
		deadline = deadline.Add(-min(left/10, time.Second))
	}
	if asked := time.Now().Add(timeout); timeout > 0 && (!bounded || asked.Before(deadline)) {
		deadline, bounded = asked, true
	}
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline)
}

// toResult is a worker's answer as a result: JSON as it is, anything else as bytes, nothing as null.
func toResult(answer []byte, r api.ExecuteRequest) (converter.RawValue, error) {
	if len(answer) > maxExecuteResponse {
		tooLarge := api.Errorf(api.CodePayloadTooLarge, "the answer to %s has %d bytes; Temporal takes %d: call the gateway for large answers", r.Method, len(answer), maxExecuteResponse)
		tooLarge.Started = true
		r.Idempotent = false // the next answer would be as large
		return converter.RawValue{}, executeFailure(tooLarge, r)
	}
	encoding := converter.MetadataEncodingJSON
	switch {
	case len(answer) == 0:
		encoding = converter.MetadataEncodingNil
	case !json.Valid(answer):
		encoding = converter.MetadataEncodingBinary
	}
	return converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding)}, Data: answer}), nil
}

func mayHaveStarted(err error) bool {
	var coded *api.Error
	return errors.As(err, &coded) && coded.Started
}

// executeFailure gives a failed call its Temporal type, which is its code, and says whether it may be retried.
func executeFailure(err error, r api.ExecuteRequest) error {
	code, message, detail := api.CodeUnavailable, err.Error(), api.ExecuteFailure{}
	var coded *api.Error
	if errors.As(err, &coded) {
		code, message = coded.Code, coded.Message
		detail.Started, detail.RetryAfterMS = coded.Started, coded.RetryAfter.Milliseconds()
	}
	var remote *wire.RemoteError
	if errors.As(err, &remote) {
		if text, err := json.Marshal(remote); err == nil { // data that is no JSON cannot be told
			detail.WorkerError = text
		}
	}
	final := detail.Started && !r.Idempotent || code == api.CodeInvalid || code == api.CodePayloadTooLarge
	return temporal.NewApplicationErrorWithOptions(message, string(code), temporal.ApplicationErrorOptions{
		NonRetryable: final, Details: []any{detail}, NextRetryDelay: time.Duration(detail.RetryAfterMS) * time.Millisecond,
	})
}

var (
	errCancelRequested = errors.New("the activity was cancelled")
	errActivityEnded   = errors.New("the activity was given up: its time was over, or its workflow has closed")
)
