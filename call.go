package tempool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// Call calls a method on any worker of the pool. It sends in as JSON (nil as no body) and reads the answer's JSON into
// out, unless out is nil.
//
// The client spreads calls over the gateways of the pool's hosts. It retries a call at another gateway only if no
// worker can have seen it. Errors are *Error: worker_error (errors.As finds the WorkerError), worker_crashed,
// memory_limit_exceeded, deadline_exceeded, queue_full, queue_timeout, rate_limited, no_workers, payload_too_large,
// pool_not_found, unavailable, cancelled, invalid. Calls do not go through Temporal: the client reads the pool's roster
// from it every few seconds, and uses the known gateways while Temporal is down.
func (p *Pool) Call(ctx context.Context, method string, in, out any) error {
	return callJSON(ctx, p.send, method, in, out)
}

// CallRaw is Call with the body and the answer as bytes.
func (p *Pool) CallRaw(ctx context.Context, method string, body []byte) ([]byte, error) {
	return callRaw(ctx, p.send, method, body)
}

// sender makes one call and returns its answer, which the caller closes.
type sender func(ctx context.Context, method string, body transport.Body) (*transport.Reply, error)

func (p *Pool) send(ctx context.Context, method string, body transport.Body) (*transport.Reply, error) {
	return p.sendTo(ctx, "/call/", method, body)
}

// sendTo sends a call to a path below that of the pool, which the method completes.
func (p *Pool) sendTo(ctx context.Context, below, method string, body transport.Body) (*transport.Reply, error) {
	path, err := methodPath("/v1/pools/"+p.name+below, method)
	if err != nil {
		return nil, err
	}
	call := gatewayCall{client: p.client, path: path, options: p.call, body: body, ends: time.Now().Add(p.call.Timeout)}
	trying, cancel := call.within(ctx)
	defer cancel()
	return p.tryGateways(trying, poolRequest{
		send:           func(endpoint string) (*transport.Reply, error) { return call.send(ctx, endpoint) },
		retryElsewhere: mayAnswerCall,
		body:           body,
	})
}

// gatewayCall is a call that can be sent to any gateway.
type gatewayCall struct {
	client  *Client
	path    string
	lease   string // the token of the lease that the call is under; "" for none
	options CallOptions
	ends    time.Time // of options.Timeout, if there is one
	body    transport.Body
}

// within returns a context that ends with the call's Timeout.
func (g gatewayCall) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.options.Timeout > 0 {
		return context.WithDeadline(ctx, g.ends)
	}
	return ctx, func() {}
}

// send sends the call with what is left of its Timeout; ctx outlasts that, for the gateway to report it.
func (g gatewayCall) send(ctx context.Context, endpoint string) (*transport.Reply, error) {
	limited, cancel := g.within(ctx)
	defer cancel()
	header, err := g.options.header(limited)
	if err != nil {
		return nil, err
	}
	if g.lease != "" {
		header.Set(api.HeaderLeaseToken, g.lease)
	}
	request := transport.Request{Method: http.MethodPost, Path: g.path, Header: header, Body: g.body}
	if g.options.Timeout > 0 {
		request.Timeout = time.Until(g.ends) + answerSlack
	}
	reply, err := g.client.transport.Do(ctx, endpoint, request)
	if err == nil {
		g.options.answered(endpoint, reply)
	}
	return reply, err
}

// mayAnswerCall reports whether another gateway may answer a call that failed with err.
func mayAnswerCall(err error) bool {
	if transport.MayHaveStarted(err) {
		return false
	}
	switch api.CodeOf(err) {
	case api.CodeUnavailable, api.CodeNoWorkers, api.CodeQueueFull, api.CodeWorkerCrashed:
		return true
	}
	return false
}

// methodPath appends a method, which may contain slashes, to the path of a call.
func methodPath(prefix, method string) (string, error) {
	if method == "" {
		return "", api.Errorf(api.CodeInvalid, "the name of the method is empty")
	}
	parts := strings.Split(method, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return prefix + strings.Join(parts, "/"), nil
}

// callJSON makes a call with JSON in both directions.
func callJSON(ctx context.Context, send sender, method string, in, out any) error {
	reply, err := send(ctx, method, transport.JSONBody(in))
	if err != nil {
		return err
	}
	content, err := reply.ReadAll()
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(content, out); err != nil {
		failure := api.Errorf(api.CodeWorkerError, "cannot decode the answer to %s: %w", method, err)
		failure.Started = true
		return failure
	}
	return nil
}

func callRaw(ctx context.Context, send sender, method string, body []byte) ([]byte, error) {
	reply, err := send(ctx, method, transport.RawBody(body))
	if err != nil {
		return nil, err
	}
	return reply.ReadAll()
}

// maxChunkBytes bounds one chunk of a streamed answer.
const maxChunkBytes = 32 << 10

// Stream calls a method and yields the answer in chunks as they arrive; the network decides where a chunk ends. in is a
// []byte or an io.Reader, which are sent as they are, or any other value, which is sent as JSON; nil means no body. The
// call starts when the iteration starts, and leaving the loop early cancels it. An error comes last, without a chunk;
// errors are those of Call.
func (p *Pool) Stream(ctx context.Context, method string, in any) iter.Seq2[[]byte, error] {
	return stream(ctx, p.send, method, in)
}

func stream(ctx context.Context, send sender, method string, in any) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		reply, err := send(ctx, method, transport.AnyBody(in))
		if err != nil {
			yield(nil, err)
			return
		}
		defer reply.Close()
		buffer := make([]byte, maxChunkBytes)
		for {
			n, err := reply.Body.Read(buffer)
			if n > 0 && !yield(bytes.Clone(buffer[:n]), nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, reply.Interrupted(err))
				return
			}
		}
	}
}

// PoolWorker is one worker of a pool, for calls that must reach this one: to look into it, or to warm it up. Each call
// waits in the queue of its gateway until the worker is free; to keep the worker for several calls, take a lease.
type PoolWorker struct {
	pool *Pool
	slot int
}

// Worker returns the worker with this number, from 0, without checking that it exists. It makes its calls with the
// options of the pool.
func (p *Pool) Worker(slot int) *PoolWorker { return &PoolWorker{p, slot} }

// Call is Pool.Call on this worker. A worker that the pool does not have is worker_not_found, one that rests until an
// operator restarts it is failed, one that is suspended is suspended, at once.
func (w *PoolWorker) Call(ctx context.Context, method string, in, out any) error {
	return callJSON(ctx, w.send, method, in, out)
}

// CallRaw is Call with the body and the answer as bytes.
func (w *PoolWorker) CallRaw(ctx context.Context, method string, body []byte) ([]byte, error) {
	return callRaw(ctx, w.send, method, body)
}

// Stream is Pool.Stream on this worker.
func (w *PoolWorker) Stream(ctx context.Context, method string, in any) iter.Seq2[[]byte, error] {
	return stream(ctx, w.send, method, in)
}

// ReleaseKey ends the process of the key that the worker serves (isolation.by = "key"), if there is one, after its
// calls in flight; a clean one follows. It needs the rights of the operator. Errors are worker_not_found,
// pool_not_found, invalid for a pool without keys, forbidden and unavailable.
func (w *PoolWorker) ReleaseKey(ctx context.Context) (result api.ReleaseResult, err error) {
	path := "/v1/admin/pools/" + w.pool.name + "/workers/" + strconv.Itoa(w.slot) + "/release"
	err = w.pool.operate(ctx, transport.Request{Method: http.MethodPost, Path: path, Timeout: sessionTimeout}, &result)
	return result, err
}

func (w *PoolWorker) send(ctx context.Context, method string, body transport.Body) (*transport.Reply, error) {
	return w.pool.sendTo(ctx, "/workers/"+strconv.Itoa(w.slot)+"/call/", method, body)
}
