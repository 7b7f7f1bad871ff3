package tempool

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tempool/tempool/api"
)

// CallOptions say how calls are made; see Pool.With and Lease.With. The zero value makes a call of the default priority, without a
// session, that lasts as long as its context or, without a deadline, ten minutes.
type CallOptions struct {
	// Session names whom the call is for. A call of a pool goes to the worker that served the session last, if that one is free.
	Session string
	// Priority of a call of a pool while it waits in a gateway's queue, 0 to 9; highest first.
	Priority int
	// Timeout bounds the call at the gateway, waiting included; the context's deadline does, too. With Timeout the gateway itself says that
	// time is over, and so whether a worker may have seen the call. 0 leaves it to the context.
	Timeout time.Duration
	// Header is sent along. Workers see traceparent, tracestate, baggage, Content-Type, Content-Language and every X- header.
	Header http.Header
	// Answered, if it is set, is told who answers, before the answer itself is read; it is not called when no worker answered.
	Answered func(Answer)
}

// Answer tells who answered a call.
type Answer struct {
	Worker      string
	Incarnation int64
	Endpoint    string // of the gateway
	Header      http.Header
}

// Names of headers.
const (
	headerSession     = "Tempool-Session"
	headerTimeout     = "Tempool-Timeout"
	headerPriority    = "Tempool-Priority"
	headerWorker      = "Tempool-Worker"
	headerIncarnation = "Tempool-Incarnation"
)

// With is the pool with other options for its calls; p itself stays as it is.
func (p *Pool) With(o CallOptions) *Pool {
	other := *p
	other.call = o
	return &other
}

// Call has any fit worker of the pool carry out a method: in is sent as JSON (nil as no body at all), and the answer's JSON is read into
// out, unless out is nil.
//
// Calls are spread over the gateways of the hosts that run the pool's workers. A call that no worker can have seen is made again by
// another gateway; one that a worker may have seen never is. Errors are *Error: worker_error (errors.As finds the WorkerError),
// worker_crashed, deadline_exceeded, queue_full, queue_timeout, rate_limited, no_workers, payload_too_large, pool_not_found,
// unavailable, cancelled, invalid. Temporal is asked where the gateways are, now and then, and not for each call; while it is
// down, those that are known go on being used.
func (p *Pool) Call(ctx context.Context, method string, in, out any) error {
	return callJSON(ctx, p.send, method, in, out)
}

// CallRaw is Call with a body that is sent, and an answer that is returned, as it is.
func (p *Pool) CallRaw(ctx context.Context, method string, body []byte) ([]byte, error) {
	return callRaw(ctx, p.send, method, body)
}

// Stream is Call for an answer that comes in pieces, which it hands on as they come; where one piece ends is for the network to say. in
// is nil, a []byte or an io.Reader, which are sent as they are, or else sent as JSON. The call is made when the iteration begins and
// ends with it: leaving the loop early cancels the call. An error comes last, beside no piece.
func (p *Pool) Stream(ctx context.Context, method string, in any) iter.Seq2[[]byte, error] {
	return stream(ctx, p.send, method, in)
}

// Calls that no gateway could take are tried in rounds of all gateways, with the roster read anew between them.
const (
	callRounds  = 4
	roundPause  = 50 * time.Millisecond
	roundGrowth = 4
)

// send makes a call through one gateway after another until one has taken it.
func (p *Pool) send(ctx context.Context, method string, body payload) (*reply, error) {
	path, err := methodPath("/v1/pools/"+p.name+"/call/", method)
	if err != nil {
		return nil, err
	}
	if !api.ValidPoolName(p.name) {
		return nil, api.Errorf(api.CodePoolNotFound, "%q names no pool; a name is 1 to 63 of a-z, 0-9, '-' and '_'", p.name)
	}
	return p.tryGateways(ctx, request{
		send:           func(endpoint string) (*reply, error) { return p.client.exchange(ctx, endpoint, path, p.call, body) },
		retryElsewhere: retryElsewhere,
		consumed:       body.consumed,
	})
}

// request is a request that one gateway of a pool is to answer.
type request struct {
	send           func(endpoint string) (*reply, error)
	retryElsewhere func(error) bool // whether another gateway may answer after this failure
	consumed       func() bool      // whether it cannot be put again
}

// tryGateways puts a question to one gateway after another until one has taken it, in rounds.
func (p *Pool) tryGateways(ctx context.Context, q request) (*reply, error) {
	fleet := p.client.balancerFor(p.name)
	pause := roundPause
	for round := 1; ; round++ {
		answer, err := q.tryEach(ctx, fleet)
		if api.CodeOf(err) == api.CodePoolNotFound {
			p.client.forget(p.name)
		}
		if err == nil || !retryRound(err) || round == callRounds || q.consumed() {
			return answer, err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
		pause *= roundGrowth
		if fleet.refresh(ctx) != nil {
			return nil, err
		}
	}
}

// tryEach asks each gateway once, the best first, until one takes the question; its error is that of the last one that could be asked.
func (q request) tryEach(ctx context.Context, f *balancer) (*reply, error) {
	passed := map[string]bool{}
	var refusal error
	for {
		l, err := f.acquire(ctx, passed)
		if err != nil || l == nil {
			if refusal == nil {
				refusal = err
			}
			return nil, refusal
		}
		answer, err := q.send(l.endpoint)
		if err == nil {
			answer.left = func() { f.release(l, nil) }
			return answer, nil
		}
		f.release(l, err)
		if !q.retryElsewhere(err) || q.consumed() {
			return nil, err
		}
		passed[l.endpoint] = true
		f.add(gatewaysIn(err))
		if refusal == nil || api.CodeOf(err) != api.CodeUnavailable { // what a gateway says tells more than that there is none
			refusal = err
		}
	}
}

// retryElsewhere reports whether another gateway may take a call that failed with err.
func retryElsewhere(err error) bool {
	if mayHaveStarted(err) {
		return false
	}
	switch api.CodeOf(err) {
	case api.CodeUnavailable, api.CodeNoWorkers, api.CodeQueueFull, api.CodeWorkerCrashed:
		return true
	}
	return false
}

// retryRound reports whether the same gateways, or those that the roster names by then, may take in a moment what none took now.
func retryRound(err error) bool {
	return !mayHaveStarted(err) && (api.CodeOf(err) == api.CodeUnavailable || api.CodeOf(err) == api.CodeNoWorkers)
}

// mayHaveStarted reports whether a worker may have seen the call that failed with err.
func mayHaveStarted(err error) bool {
	var coded *api.Error
	return !errors.As(err, &coded) || coded.Started
}
