package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/internal/transport"
)

// Trip is one request to another gateway.
type Trip struct {
	pool.Place
	Caller Caller
	// Body are the bytes that were read of the request's body already; nil forwards the body of the request itself.
	Body []byte
	// Deadline is when a call must end; zero for none. The peer has connectTimeout more to say that it has passed, if the
	// request's context lasts.
	Deadline time.Time
	// Silence is how long the peer may take to begin its answer to a request without a deadline; zero for as long as it
	// likes.
	Silence time.Duration
}

// Values of the header Tempool-Refused.
const (
	refusedCall = "call" // it was not started, and may go elsewhere
	refusedPeer = "peer" // this gateway is no peer, or not the host that is meant
)

// RefuseCall marks the answer to a forwarded call that no worker has seen and that another host may serve.
func RefuseCall(h http.Header) { h.Set(api.HeaderRefused, refusedCall) }

// RefusePeer marks the answer to a gateway that must not forward requests here.
func RefusePeer(h http.Header) { h.Set(api.HeaderRefused, refusedPeer) }

// refused is a refusal of another gateway.
type refused struct {
	coded *api.Error
	peer  bool // of the gateway, not of the call
}

func (e refused) Error() string { return e.coded.Error() }
func (e refused) Unwrap() error { return e.coded }

// errSilent is the failure of a peer that does not say whether it has a worker for a call, or that its time is over.
var errSilent = errors.New("it has not answered in time")

// gatedBody is a body that is sent only once the peer has asked for it, with 100 Continue: when it has found a worker.
type gatedBody struct {
	io.Reader
	asked atomic.Bool
	begun atomic.Bool // some of it may have been sent
}

func (b *gatedBody) Read(p []byte) (int, error) {
	if !b.asked.Load() {
		return 0, errSilent
	}
	b.begun.Store(true)
	return b.Reader.Read(p)
}

func (b *gatedBody) Close() error { return nil }

// Forward sends a request to a peer and relays its answer, streams and upgraded connections included. It returns an
// error only if nothing was written; one that wraps pool.ErrNotTaken says that no worker can have seen the request.
// It panics with http.ErrAbortHandler when an answer breaks off.
func (p *Peers) Forward(w http.ResponseWriter, r *http.Request, trip Trip) error {
	var once sync.Once
	settled := func(taken bool) {
		if trip.Settled != nil {
			once.Do(func() { trip.Settled(taken) })
		}
	}
	defer settled(false)
	base, err := p.reach(trip.Peer)
	if err != nil {
		return notTaken(err)
	}
	caller := trip.Caller
	caller.From, caller.To = p.config.HostID, trip.Host
	if !trip.Deadline.IsZero() {
		ctx, cancel := context.WithDeadlineCause(r.Context(), trip.Deadline.Add(connectTimeout), errSilent)
		defer cancel()
		r = r.WithContext(ctx)
	}
	heard := func() bool { return true }
	if trip.Silence > 0 {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		silence := time.AfterFunc(trip.Silence, func() { cancel(errSilent) })
		defer silence.Stop()
		heard, r = silence.Stop, r.WithContext(ctx)
	}
	var body *gatedBody
	content, length := io.Reader(r.Body), r.ContentLength
	if trip.Body != nil {
		content, length = bytes.NewReader(trip.Body), int64(len(trip.Body))
	}
	ctx, begun := transport.TraceSent(r.Context(), r.Header)
	if caller.Gated {
		body = &gatedBody{Reader: content}
		begun = body.begun.Load
		caller.Empty = length == 0
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() {
			body.asked.Store(true)
			settled(true)
		}})
	}
	var failure error
	began := time.Now()
	proxy := httputil.ReverseProxy{
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		// the proxy's own trace of ctx would relay 100 Continue to the client
		Transport: roundTripper(func(out *http.Request) (*http.Response, error) {
			return p.transport.RoundTrip(out.WithContext(ctx))
		}),
		Rewrite: func(out *httputil.ProxyRequest) {
			to := out.Out
			to.URL.Scheme, to.URL.Host, to.Host = base.Scheme, base.Host, base.Host
			to.Header.Del("Authorization") // it is this gateway's
			if trip.Body == nil {          // the worker speaks plain HTTP, which has the address of its client
				out.SetXForwarded()
			}
			caller.write(to.Header, p.secretFor(base))
			tracecontext.ToHTTP(ctx, to.Header)
			if !trip.Deadline.IsZero() {
				to.Header.Set(api.HeaderTimeout, strconv.FormatInt(max(1, time.Until(trip.Deadline).Milliseconds()), 10))
			}
			switch {
			case body != nil:
				to.Header.Set("Expect", "100-continue")
				if to.Body, to.ContentLength = body, length; length <= 0 {
					to.ContentLength, to.TransferEncoding = -1, []string{"chunked"} // else an empty body is not awaited
				}
			case trip.Body != nil:
				to.Body, to.ContentLength = io.NopCloser(content), length
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			heard()
			p.answered(trip.Peer)
			how := answer.Header.Get(api.HeaderRefused)
			answer.Header.Del(api.HeaderRefused)
			if how == "" {
				return nil
			}
			text, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
			if err != nil {
				return err
			}
			return refused{transport.Problem(answer, text), how == refusedPeer}
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failure = err },
	}
	sent := r.WithContext(r.Context())
	if body != nil {
		sent.Body = http.NoBody // the proxy closes it, but a call that is refused may need it again
	}
	proxy.ServeHTTP(w, sent)
	if failure == nil {
		return nil
	}
	return p.failure(r.Context(), trip, time.Since(began), failure, begun())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// failure codes the failure to forward a request. begun says that the peer may have acted on it.
func (p *Peers) failure(ctx context.Context, trip Trip, waited time.Duration, err error, begun bool) error {
	refusal, isRefusal := errors.AsType[refused](err)
	begun = begun && !isRefusal
	var coded *api.Error
	switch {
	case isRefusal:
		if coded = refusal.coded; refusal.peer {
			p.failed(trip.Peer, err)
		}
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(context.Cause(ctx), errSilent):
		if errors.Is(context.Cause(ctx), errSilent) || !begun && waited > maxPatience*5/4 {
			p.failed(trip.Peer, errSilent)
		}
		coded = api.Errorf(api.CodeDeadlineExceeded, "host %s did not answer in time", trip.Host)
	case ctx.Err() != nil:
		coded = api.Errorf(api.CodeCancelled, "the call on host %s was cancelled by its caller", trip.Host)
	case !begun:
		p.failed(trip.Peer, err)
		coded = api.Errorf(api.CodeUnavailable, "the gateway of host %s does not answer: %w", trip.Host,
			err).After(time.Second)
	default:
		coded = api.Errorf(api.CodeWorkerCrashed, "the gateway of host %s was lost while it served the call: %w",
			trip.Host, err)
	}
	if coded.Started = begun; begun {
		return coded
	}
	return notTaken(coded)
}

func notTaken(err error) error { return fmt.Errorf("%w: %w", pool.ErrNotTaken, err) }
