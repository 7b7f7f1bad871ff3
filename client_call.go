package tempool

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net/http"
	"time"
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
	if !ValidPoolName(p.name) {
		return nil, Errorf(CodePoolNotFound, "%q names no pool; a name is 1 to 63 of a-z, 0-9, '-' and '_'", p.name)
	}
	return p.ask(ctx, question{
		put:      func(endpoint string) (*reply, error) { return p.client.exchange(ctx, endpoint, path, p.call, body) },
		another:  worthAnother,
		consumed: body.consumed,
	})
}

// question is a request that one gateway of a pool is to answer.
type question struct {
	put      func(endpoint string) (*reply, error)
	another  func(error) bool // whether another gateway may answer after this failure
	consumed func() bool      // whether it cannot be put again
}

// ask puts a question to one gateway after another until one has taken it, in rounds.
func (p *Pool) ask(ctx context.Context, q question) (*reply, error) {
	fleet := p.client.fleet(p.name)
	pause := roundPause
	for round := 1; ; round++ {
		answer, err := q.oneRound(ctx, fleet)
		if CodeOf(err) == CodePoolNotFound {
			p.client.forget(p.name)
		}
		if err == nil || !worthARound(err) || round == callRounds || q.consumed() {
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

// oneRound asks each gateway once, the best first, until one takes the question; its error is that of the last one that could be asked.
func (q question) oneRound(ctx context.Context, f *fleet) (*reply, error) {
	passed := map[string]bool{}
	var refusal error
	for {
		l, err := f.take(ctx, passed)
		if err != nil || l == nil {
			if refusal == nil {
				refusal = err
			}
			return nil, refusal
		}
		answer, err := q.put(l.endpoint)
		if err == nil {
			answer.left = func() { f.end(l, nil) }
			return answer, nil
		}
		f.end(l, err)
		if !q.another(err) || q.consumed() {
			return nil, err
		}
		passed[l.endpoint] = true
		f.direct(directionsOf(err))
		if refusal == nil || CodeOf(err) != CodeUnavailable { // what a gateway says tells more than that there is none
			refusal = err
		}
	}
}

// worthAnother reports whether another gateway may take a call that failed with err.
func worthAnother(err error) bool {
	if startedOf(err) {
		return false
	}
	switch CodeOf(err) {
	case CodeUnavailable, CodeNoWorkers, CodeQueueFull, CodeWorkerCrashed:
		return true
	}
	return false
}

// worthARound reports whether the same gateways, or those that the roster names by then, may take in a moment what none took now.
func worthARound(err error) bool {
	return !startedOf(err) && (CodeOf(err) == CodeUnavailable || CodeOf(err) == CodeNoWorkers)
}

// startedOf reports whether a worker may have seen the call that failed with err.
func startedOf(err error) bool {
	var coded *Error
	return !errors.As(err, &coded) || coded.Started
}
