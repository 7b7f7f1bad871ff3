package tempool

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// Call calls a method on any worker of the pool. It sends in as JSON (nil as no body) and reads the answer's JSON into out, unless out is nil.
//
// The client spreads calls over the gateways of the pool's hosts. It retries a call at another gateway only if no worker can have seen it.
// Errors are *Error: worker_error (errors.As finds the WorkerError), worker_crashed, memory_limit_exceeded, deadline_exceeded, queue_full, queue_timeout,
// rate_limited, no_workers, payload_too_large, pool_not_found, unavailable, cancelled, invalid. Calls do not go through Temporal: the client
// reads the pool's roster from it every few seconds, and uses the known gateways while Temporal is down.
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
	if err := p.validName(); err != nil {
		return nil, err
	}
	call := gatewayCall{client: p.client, path: path, options: p.call, body: body}
	return p.tryGateways(ctx, poolRequest{
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
	body    transport.Body
}

func (g gatewayCall) send(ctx context.Context, endpoint string) (*transport.Reply, error) {
	header, err := g.options.header(ctx)
	if err != nil {
		return nil, err
	}
	if g.lease != "" {
		header.Set(api.HeaderLeaseToken, g.lease)
	}
	request := transport.Request{Method: http.MethodPost, Path: g.path, Header: header, Body: g.body}
	if g.options.Timeout > 0 {
		request.Timeout = g.options.Timeout + answerSlack
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
	body, err := transport.JSONBody(in)
	if err != nil {
		return err
	}
	reply, err := send(ctx, method, body)
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
