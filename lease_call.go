package tempool

import (
	"cmp"
	"context"
	"iter"
	"net/url"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// Call calls a method on the lease's worker; in, out and errors are those of Pool.Call, and lease_fenced or
// lease_not_found if the lease has ended. A call under a lease is not retried, except at another one of
// Options.Gateways if the lease's cannot be reached.
func (l *Lease) Call(ctx context.Context, method string, in, out any) error {
	return l.count(func() error { return callJSON(ctx, l.send("/call/"), method, in, out) })
}

// CallRaw is Call with the body and the answer as bytes.
func (l *Lease) CallRaw(ctx context.Context, method string, body []byte) (answer []byte, err error) {
	err = l.count(func() error {
		answer, err = callRaw(ctx, l.send("/call/"), method, body)
		return err
	})
	return answer, err
}

// Stream is Call with an answer in chunks; see Pool.Stream.
func (l *Lease) Stream(ctx context.Context, method string, in any) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		started := false
		err := l.count(func() (failure error) {
			started = true
			for chunk, err := range stream(ctx, l.send("/call/"), method, in) {
				failure = err
				if !yield(chunk, err) {
					break
				}
			}
			return failure
		})
		if !started { // else the loop has yielded err
			yield(nil, err)
		}
	}
}

// Notify sends a notification to the lease's worker, which does not answer it, such as a language server's
// textDocument/didChange. It returns when the gateway has accepted the notification; errors are those of Call.
func (l *Lease) Notify(ctx context.Context, method string, in any) error {
	return l.count(func() error { return callJSON(ctx, l.send("/notify/"), method, in, nil) })
}

// send returns the sender for calls or notifications. If the lease's gateway refers to another one before a worker has
// seen the call, the call goes there, and all later ones do once the worker has answered.
func (l *Lease) send(verb string) sender {
	return func(ctx context.Context, method string, body transport.Body) (*transport.Reply, error) {
		path, err := methodPath("/v1/leases/"+url.PathEscape(l.ID)+verb, method)
		if err = cmp.Or(err, body.Err()); err != nil {
			return nil, err
		}
		endpoint := l.state.gateway()
		if endpoint == "" {
			return nil, api.Errorf(api.CodeUnavailable, "cannot call worker %s: its host has no gateway", l.Worker)
		}
		options := l.options
		options.Key = cmp.Or(options.Key, l.state.key)
		options.Session = cmp.Or(l.state.lease.Session, options.Session)
		call := gatewayCall{client: l.state.client, path: path, lease: l.state.lease.Token, options: options, body: body,
			ends: time.Now().Add(options.Timeout)}
		var reply *transport.Reply
		err = l.state.atGateways(ctx, func(to string) (failure error) {
			endpoint = to
			reply, failure = call.send(ctx, to)
			return failure
		}, func(err error) bool {
			return api.CodeOf(err) == api.CodeUnavailable && !transport.MayHaveStarted(err) && !body.Consumed()
		})
		limited, cancel := call.within(ctx)
		defer cancel()
		if others := l.state.client.referrals(limited, endpoint, err); len(others) > 0 && others[0] != endpoint &&
			!body.Consumed() {
			reply, err = call.send(ctx, others[0])
			if hasAnswered(err) { // else it may be unreachable from here
				l.state.setGateway(others[0])
			}
		}
		return reply, err
	}
}

// count makes a call and counts it for the checkin, unless the lease is checked in.
func (l *Lease) count(call func() error) error {
	if l.state == nil {
		return errUnbound
	}
	s := l.state
	s.mu.Lock()
	checkedIn := s.checkedIn
	s.mu.Unlock()
	if checkedIn {
		return api.Errorf(api.CodeLeaseFenced, "lease %s is checked in", l.ID)
	}
	began := time.Now()
	err := call()
	if err == nil || transport.MayHaveStarted(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seenByGateway = true
		s.usage.Requests++
		s.usage.TotalMS += time.Since(began).Milliseconds()
		if err != nil {
			s.usage.Failed++
		}
	}
	return err
}
