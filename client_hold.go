package tempool

import (
	"context"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

// Lease is the exclusive right to one worker, and the handle to use the worker by (Call, Stream, Renew, Checkin). Clients make it:
// Checkout, TryCheckout, CheckoutOnce, Renew and Adopt. It is safe for concurrent use.
type Lease struct {
	api.Lease

	state   *leaseState  // nil in a Lease that no client made
	options *CallOptions // of calls under it; nil for none
}

// hold is what makes a Lease usable by the program that took it: its client, and what became of it since it was granted.
type leaseState struct {
	client *Client
	lease  api.Lease // as granted
	ttl    time.Duration

	mu       sync.Mutex
	endpoint string    // of the gateway that carries its calls
	expires  time.Time // by this machine's clock
	usage    api.Usage
	returned bool
	failure  error         // why the lease is no longer good, or no longer renewed
	done     chan struct{} // closed with lost or returned set

	// stop ends the renewing, and renewing is closed when it has ended; both are nil if nothing renews.
	stop     context.CancelFunc
	renewing chan struct{}
}

// bind makes a lease usable that was granted just now, in answer to a request sent at asked.
func (c *Client) bind(lease api.Lease, asked time.Time) *Lease {
	granted := lease.ExpiresAt.Sub(lease.GrantedAt)
	return &Lease{Lease: lease, state: &leaseState{client: c, lease: lease, ttl: granted, endpoint: lease.Endpoint, expires: asked.Add(granted), done: make(chan struct{})}}
}

// Adopt makes a lease usable through this client that somebody else took, for example ctl checkout -o json. It is not renewed in the
// background.
func (c *Client) Adopt(lease api.Lease) *Lease {
	// When it was renewed is not known, so neither is its TTL; the next renewal is for what the spec says.
	return &Lease{Lease: lease, state: &leaseState{client: c, lease: lease, endpoint: lease.Endpoint, expires: lease.ExpiresAt, done: make(chan struct{})}}
}

var errUnbound = api.Errorf(api.CodeInvalid, "this lease is a message that was read; Client.Adopt makes it usable")

// With is the lease with other options for its calls; l itself stays as it is. Session and Priority are for calls of a pool: a lease
// has the session it was checked out with.
func (l *Lease) With(o CallOptions) *Lease {
	other := *l
	other.options = &o
	return &other
}

// Call has the lease's worker carry out a method; in, out and errors are as in Pool.Call, with lease_fenced and lease_not_found besides
// where the lease is not good any more. A call under a lease is never made again by itself. Leases that Checkout, TryCheckout,
// CheckoutOnce and Adopt return can be used so; one that was read from a message is CodeInvalid.
func (l *Lease) Call(ctx context.Context, method string, in, out any) error {
	return l.counted(func() error { return callJSON(ctx, l.send, method, in, out) })
}

// CallRaw is Call with a body that is sent, and an answer that is returned, as it is.
func (l *Lease) CallRaw(ctx context.Context, method string, body []byte) (answer []byte, err error) {
	err = l.counted(func() error {
		answer, err = callRaw(ctx, l.send, method, body)
		return err
	})
	return answer, err
}

// Stream is Call for an answer that comes in pieces; see Pool.Stream.
func (l *Lease) Stream(ctx context.Context, method string, in any) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		made := false
		err := l.counted(func() (failure error) {
			made = true
			for piece, err := range stream(ctx, l.send, method, in) {
				failure = err
				if !yield(piece, err) {
					break
				}
			}
			return failure
		})
		if !made { // other failures were handed on in their turn
			yield(nil, err)
		}
	}
}

// Notify tells the lease's worker something that it does not answer, as language servers are told of a change. nil means that it is on its
// way. Errors are as in Call.
func (l *Lease) Notify(ctx context.Context, method string, in any) error {
	return l.counted(func() error {
		return callJSON(ctx, func(ctx context.Context, method string, body payload) (*reply, error) {
			return l.ask(ctx, "/notify/", method, body)
		}, method, in, nil)
	})
}

func (l *Lease) send(ctx context.Context, method string, body payload) (*reply, error) {
	return l.ask(ctx, "/call/", method, body)
}

// tryGateways makes a call or a notification.
func (l *Lease) ask(ctx context.Context, verb, method string, body payload) (*reply, error) {
	path, err := methodPath("/v1/leases/"+url.PathEscape(l.ID)+verb, method)
	if err != nil {
		return nil, err
	}
	endpoint := l.state.gateway()
	if endpoint == "" {
		return nil, api.Errorf(api.CodeUnavailable, "worker %s cannot be called: its host has no gateway", l.Worker)
	}
	var o CallOptions
	if l.options != nil {
		o = *l.options
	}
	answer, err := l.state.client.exchange(ctx, endpoint, path, o, body)
	if others := gatewaysIn(err); len(others) > 0 && others[0] != endpoint && !body.consumed() {
		l.state.moveTo(others[0])
		return l.state.client.exchange(ctx, others[0], path, o, body)
	}
	return answer, err
}

// gateway is the endpoint for calls under the lease.
func (h *leaseState) gateway() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.endpoint
}

// moveTo has further calls go through another gateway.
func (h *leaseState) moveTo(endpoint string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endpoint = endpoint
}

// counted makes a call unless the lease is over, and counts it for the checkin.
func (l *Lease) counted(call func() error) error {
	if l.state == nil {
		return errUnbound
	}
	h := l.state
	h.mu.Lock()
	returned := h.returned
	h.mu.Unlock()
	if returned {
		return api.Errorf(api.CodeLeaseFenced, "lease %s was given back", l.ID)
	}
	began := time.Now()
	err := call()
	if err == nil || mayHaveStarted(err) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.usage.Requests++
		h.usage.TotalMS += time.Since(began).Milliseconds()
		if err != nil {
			h.usage.Failed++
		}
	}
	return err
}

// Expires is when the lease ends unless it is renewed, by this machine's clock; renewals move it, while the field ExpiresAt stays.
func (l *Lease) Expires() time.Time {
	if l.state == nil {
		return l.ExpiresAt
	}
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	return l.state.expires
}

// Done is closed when the lease was given back, was lost, or is no longer renewed; Err says which. It is nil for a lease that was read
// from a message.
func (l *Lease) Done() <-chan struct{} {
	if l.state == nil {
		return nil
	}
	return l.state.done
}

// Err is nil while the lease is held or after it was given back, else why it was lost: lease_fenced, lease_not_found, or the end of the
// context of its Checkout.
func (l *Lease) Err() error {
	if l.state == nil {
		return nil
	}
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	return l.state.failure
}

// Renew makes the lease last for the TTL it was checked out with, from now. A lease that Checkout returned does so by itself.
func (l *Lease) Renew(ctx context.Context) error {
	if l.state == nil {
		return errUnbound
	}
	return l.state.renew(ctx)
}

// Checkin gives the lease back and says how it went, with what was counted under it; the renewing has ended when it returns. It is as
// Client.Checkin: done when the worker's workflow has the message. If it fails, it may be tried again; otherwise a second time changes nothing.
func (l *Lease) Checkin(ctx context.Context, outcome api.Outcome) error {
	if l.state == nil {
		return errUnbound
	}
	return l.state.checkin(ctx, outcome)
}

// finish ends the lease for this program, once; lost is nil if it was given back.
func (h *leaseState) finish(lost error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.done:
	default:
		h.failure = lost
		close(h.done)
	}
}

func (h *leaseState) renew(ctx context.Context) error {
	asked := time.Now()
	var renewed api.Lease
	var err error
	if h.client.fixed != nil {
		path := "/v1/leases/" + url.PathEscape(h.lease.ID)
		err = h.client.control(ctx, h.gateway(), http.MethodPut, path, map[string]int64{"ttl_ms": h.ttl.Milliseconds()}, &renewed)
	} else {
		renewed, err = h.client.extend(ctx, h.lease.ID, h.ttl)
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.expires = renewed.ExpiresAt; h.ttl > 0 { // this clock may differ from the one that ExpiresAt is of
		h.expires = asked.Add(h.ttl)
	}
	return nil
}

func (h *leaseState) checkin(ctx context.Context, outcome api.Outcome) error {
	h.mu.Lock()
	again := h.returned
	h.returned = true
	request := api.CheckinRequest{LeaseID: h.lease.ID, Outcome: outcome, Usage: h.usage}
	h.mu.Unlock()
	if again {
		return nil
	}
	h.client.stopRenewing(h.lease.ID)
	var err error
	if h.client.fixed != nil { // the gateway counted what it carried
		path := "/v1/leases/" + url.PathEscape(h.lease.ID) + "?outcome=" + url.QueryEscape(string(outcome))
		err = h.client.control(ctx, h.gateway(), http.MethodDelete, path, nil, &api.CheckinResult{})
	} else {
		err = h.client.Checkin(ctx, request)
	}
	if err != nil {
		h.mu.Lock()
		h.returned = false
		h.mu.Unlock()
		return err
	}
	h.finish(nil)
	return nil
}

// Renewing of a lease in the background.
const (
	renewAttempt  = 10 * time.Second // bounds one attempt, and half of the TTL does, too
	renewMinPause = 20 * time.Millisecond
	renewMaxPause = 5 * time.Second // between attempts that failed
)

// keepAlive renews the lease until it is given back, is lost, or ctx ends.
func (c *Client) keepAlive(ctx context.Context, h *leaseState) {
	ctx, stop := context.WithCancelCause(ctx)
	h.stop, h.renewing = func() { stop(nil) }, make(chan struct{})
	c.mu.Lock()
	c.renewing[h.lease.ID] = h
	c.mu.Unlock()
	started := c.goBackground(func(life context.Context) {
		defer close(h.renewing)
		defer context.AfterFunc(life, func() { stop(errClientClosed) })()
		h.finishUnlessReturned(h.renewLoop(ctx))
		c.mu.Lock()
		delete(c.renewing, h.lease.ID)
		c.mu.Unlock()
	})
	if !started {
		close(h.renewing)
		h.finish(errClientClosed)
	}
}

// finishUnlessReturned ends a lease whose renewing has ended by itself.
func (h *leaseState) finishUnlessReturned(why error) {
	h.mu.Lock()
	returned := h.returned
	h.mu.Unlock()
	if !returned {
		h.finish(why)
	}
}

// renewLoop renews the lease again and again, and returns why it does so no longer.
func (h *leaseState) renewLoop(ctx context.Context) error {
	failures := 0
	timer := time.NewTimer(h.nextRenewal(0))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		attempt, cancel := context.WithTimeout(ctx, max(renewMinPause, min(renewAttempt, h.ttl/2)))
		err := h.renew(attempt)
		cancel()
		switch api.CodeOf(err) {
		case api.CodeLeaseFenced, api.CodeLeaseNotFound, api.CodeWorkerNotFound, api.CodeInvalid:
			return err
		}
		if err == nil {
			failures = 0
		} else {
			failures++
		}
		timer.Reset(h.nextRenewal(failures))
	}
}

// nextRenewal is how long to wait: until about half of the TTL is left, or, after failures, less and less often. Whether the lease
// is over is for its worker to say, so time that has run out by this clock ends nothing.
func (h *leaseState) nextRenewal(failures int) time.Duration {
	if failures > 0 {
		pause := min(max(h.ttl/16, renewMinPause)<<min(failures-1, 8), renewMaxPause)
		return pause/2 + rand.N(pause)
	}
	half := h.ttl / 2
	return max(renewMinPause, half-rand.N(half/4+1))
}

// stopRenewing ends the renewing of a lease that is being given back, if there is any, and waits for it.
func (c *Client) stopRenewing(leaseID string) {
	c.mu.Lock()
	h := c.renewing[leaseID]
	c.mu.Unlock()
	if h == nil {
		return
	}
	h.mu.Lock()
	h.returned = true
	h.mu.Unlock()
	h.stop()
	<-h.renewing
	h.finish(nil)
}

// control asks a gateway for what is no call.
func (c *Client) control(ctx context.Context, endpoint, method, path string, in, out any) error {
	body, err := jsonPayload(in)
	if err != nil {
		return err
	}
	response, err := c.transport.do(ctx, endpoint, method, path, http.Header{"Content-Type": {"application/json"}}, body.body())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return api.Errorf(api.CodeUnavailable, "the answer of the gateway at %s to %s %s cannot be read: %w", endpoint, method, strconv.Quote(path), err)
	}
	return nil
}
