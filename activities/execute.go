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

// Executor is the part of the data plane that Execute uses.
type Executor interface {
	// Execute runs a call on a worker of the pool under a lease of the data plane. It calls placed when the call is in a
	// queue or on a worker, and begun before it sends the request; if begun fails, the request is not sent.
	Execute(ctx context.Context, pool string, r api.ExecuteRequest, placed func(),
		begun func(worker string, incarnation int64) error) ([]byte, error)
}

// Pool implements the activities Execute and Checkout of one pool on one host; without a Name, Execute under leases on
// workers of the host.
type Pool struct {
	Name, Host string
	Executor   Executor
	// Lease leases a worker of this host, or fails with a coded error, soon.
	Lease func(context.Context, api.CheckoutRequest) (*api.Lease, error)
	// Temporal receives the heartbeats. Unlike those of activity.RecordHeartbeat, they report their failures, and a
	// failure ends no call.
	Temporal HeartbeatClient
	// Placed is called when the data plane has queued or placed a call; the function it returns is called when the
	// activity ends.
	Placed func() (ended func())
	Logger *slog.Logger
}

// maxExecuteResponse is Temporal's default limit of a payload, less room for the message around it.
const maxExecuteResponse = 2<<20 - 16<<10

// Execute runs one call. It fails with an ApplicationError whose type is an api.Code and whose detail is an
// api.ExecuteFailure. The activity's retry policy applies unless the worker may have received the request, or no retry
// can succeed.
func (p *Pool) Execute(ctx context.Context, input converter.RawValue) (converter.RawValue, error) {
	request, err := api.ParseExecuteRequest(input.Payload().GetData())
	if err == nil && (p.Name == "") != (request.Lease != "") {
		err = api.Errorf(api.CodeInvalid,
			"a call under a lease goes to the task queue of the lease's host, any other to that of its pool")
	}
	if err != nil {
		return converter.RawValue{}, executeFailure(err, request)
	}
	if lost := previousAttemptLost(ctx); lost != nil && !request.Idempotent {
		return converter.RawValue{}, executeFailure(lost, request)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stopDeadline := withCallDeadline(ctx, time.Duration(request.TimeoutMS)*time.Millisecond)
	defer stopDeadline()
	heartbeat := startCallHeartbeat(ctx, p, cancel)
	response, err := p.call(ctx, request, heartbeat)
	heartbeat.stop()
	switch {
	case err == nil:
		return toResult(response, request)
	case errors.Is(context.Cause(ctx), errCancelRequested):
		return converter.RawValue{}, temporal.NewCanceledError(err.Error())
	case errors.Is(context.Cause(ctx), context.Canceled):
		stopping := api.Errorf(api.CodeUnavailable, "the agent of host %s stopped before the call ended: %w", p.Host, err)
		stopping.Started = mayHaveStarted(err)
		err = stopping
	}
	if !mayHaveStarted(err) && heartbeat.beginRecorded.Load() {
		heartbeat.retract() // so that the next attempt may send the request
	}
	return converter.RawValue{}, executeFailure(err, request)
}

func (p *Pool) call(ctx context.Context, request api.ExecuteRequest, heartbeat *callHeartbeat) ([]byte, error) {
	var ended func()
	defer func() {
		if ended != nil {
			ended()
		}
	}()
	placed := func() {
		if ended == nil { // a call whose worker ended before the request was sent is placed again
			ended = p.Placed()
		}
	}
	return p.Executor.Execute(ctx, p.Name, request, placed, func(worker string, incarnation int64) error {
		return heartbeat.begin(api.ExecuteProgress{Began: true, Worker: worker, Incarnation: incarnation, Host: p.Host},
			request.Idempotent)
	})
}

// previousAttemptLost returns an error if the previous attempt may have sent the request and never reported its end.
func previousAttemptLost(ctx context.Context) error {
	var previous api.ExecuteProgress
	if !activity.HasHeartbeatDetails(ctx) || activity.GetHeartbeatDetails(ctx, &previous) != nil || !previous.Began {
		return nil
	}
	lost := api.Errorf(api.CodeWorkerCrashed,
		"the agent of host %s was lost while %s served the call, so the call may have run; "+
			"set idempotent to retry such calls", previous.Host, previous.Worker)
	lost.Started = true
	return lost
}

// withCallDeadline bounds a call by timeout, and ends it a little before the activity's deadline, so that the caller
// gets the error of the call and not a timeout of the activity.
func withCallDeadline(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	if bounded {
		left := time.Until(deadline)
		deadline = deadline.Add(-min(left/10, time.Second))
	}
	if requested := time.Now().Add(timeout); timeout > 0 && (!bounded || requested.Before(deadline)) {
		deadline, bounded = requested, true
	}
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline)
}

// toResult encodes a worker's response: JSON as it is, other bytes as binary, an empty response as null.
func toResult(response []byte, r api.ExecuteRequest) (converter.RawValue, error) {
	if len(response) > maxExecuteResponse {
		tooLarge := api.Errorf(api.CodePayloadTooLarge,
			"the response of %s has %d bytes; Temporal accepts %d; use the gateway for large responses", r.Method, len(response),
			maxExecuteResponse)
		tooLarge.Started = true
		r.Idempotent = false // a retry would get as large a response
		return converter.RawValue{}, executeFailure(tooLarge, r)
	}
	encoding := converter.MetadataEncodingJSON
	switch {
	case len(response) == 0:
		encoding = converter.MetadataEncodingNil
	case !json.Valid(response):
		encoding = converter.MetadataEncodingBinary
	}
	return converter.NewRawValue(
		&commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding)}, Data: response}), nil
}

func mayHaveStarted(err error) bool {
	coded, ok := errors.AsType[*api.Error](err)
	return ok && coded.Started
}

// executeFailure converts the error of a call to an ApplicationError whose type is the error's code, and decides
// whether it is retryable.
func executeFailure(err error, r api.ExecuteRequest) error {
	code, message, detail := api.CodeUnavailable, err.Error(), api.ExecuteFailure{}
	if coded, ok := errors.AsType[*api.Error](err); ok {
		code, message = coded.Code, coded.Message
		detail.Started, detail.RetryAfterMS = coded.Started, coded.RetryAfter.Milliseconds()
	}
	if remote, ok := errors.AsType[*wire.RemoteError](err); ok {
		if text, err := json.Marshal(remote); err == nil { // fails if the worker's error data is not JSON
			detail.WorkerError = text
		}
	}
	final := detail.Started && !r.Idempotent || code == api.CodeInvalid || code == api.CodeMethodNotFound ||
		code == api.CodePayloadTooLarge || code == api.CodeKeyRequired ||
		r.Lease != "" && !code.Retryable()
	return temporal.NewApplicationErrorWithOptions(message, string(code), temporal.ApplicationErrorOptions{
		NonRetryable: final, Details: []any{detail}, NextRetryDelay: time.Duration(detail.RetryAfterMS) * time.Millisecond,
	})
}
