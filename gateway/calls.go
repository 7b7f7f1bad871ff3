package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/gateway/ui"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process/wire"
)

// callPool starts a call on any worker of the pool in the path, or on the one in the path.
func (g *Gateway) callPool(w http.ResponseWriter, r *http.Request) error {
	name, session := r.PathValue("pool"), r.Header.Get(api.HeaderSession)
	priority, err := priorityOf(r)
	target := pool.AnyWorker(name, session, priority)
	if number := r.PathValue("slot"); number != "" && err == nil {
		var slot int
		_, slot, err = api.ParseWorkerName(name + "/" + number)
		target = pool.OneWorker(name, slot, session, priority)
	}
	if err != nil {
		return err
	}
	return g.serveCall(w, r, name, target)
}

func (g *Gateway) releaseKey(w http.ResponseWriter, r *http.Request) error {
	name, slot, err := api.ParseWorkerName(r.PathValue("pool") + "/" + r.PathValue("slot"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	released, err := g.ReleaseKey(ctx, name, slot)
	if err == nil {
		writeJSON(w, http.StatusOK, released)
	}
	return err
}

// priorityOf is the priority of a call in the queue: what the client asks for, and may ask for.
func priorityOf(r *http.Request) (int, error) {
	priority, err := integer(r.Header, api.HeaderPriority, pool.DefaultPriority, pool.MinPriority, pool.MaxPriority)
	return min(priority, principalOf(r).MaxPriority), err
}

func (g *Gateway) callLease(w http.ResponseWriter, r *http.Request) error {
	id, authority := leaseOf(r)
	ref, err := api.ParseLeaseID(id)
	if err != nil {
		return err
	}
	return g.serveCall(w, r, ref.Pool, pool.UnderLease(id, authority))
}

// serveCall starts a call on the target and answers with the worker's answer. It returns an error only if nothing was
// written.
func (g *Gateway) serveCall(w http.ResponseWriter, r *http.Request, name string, target pool.Target) error {
	if strings.EqualFold(r.Header.Get("Service-Worker"), "script") { // it would answer in place of the gateway
		return api.Errorf(api.CodeForbidden,
			"a worker cannot serve the script of a service worker, because its address is also the gateway's; serve it "+
				"through a proxy under another host name")
	}
	plain, limit, err := g.RequestFormat(r.Context(), name)
	if err != nil {
		return err
	}
	request, timeout, err := callRequest(r, "call", plain)
	if err != nil {
		return err
	}
	request.Client = principalOf(r).Name
	request.Deadline = g.Deadline(name, timeout)
	if r.Method != http.MethodPost && !plain {
		w.Header().Set("Allow", http.MethodPost)
		return api.Errorf(codeMethodNotAllowed,
			"%s allows POST, not %s; only workers with pool.protocol none take other methods", r.URL.Path, r.Method)
	}
	request.Verb = knownMethod(r.Method)
	caller := callerOf(r)
	if guest := caller != nil && caller.Gated; guest {
		request.Unbuffered = true // the body follows when there is a worker for it
		target = target.AsGuest(caller.Guest())
	} else if request.Unbuffered = plain; plain {
		// a streamed body may take as long as the call; a forwarded one is read while the other host answers
		_ = http.NewResponseController(w).SetReadDeadline(request.Deadline.Add(time.Second))
		r.Body = http.MaxBytesReader(w, r.Body, limit)
	} else { // before a worker is chosen, so that a slow client blocks no worker
		if request.Body, err = readBody(w, r, limit, request.Deadline); err != nil {
			return err
		}
	}
	if request.Forward = g.forwardCall(w, r, request, connectionOf(r).body); !request.Trace.IsZero() {
		setTrace(r.Header, request)
	}
	call, err := g.Do(r.Context(), target, request, func(call *pool.Call, request pool.Request) (err error) {
		if caller != nil && caller.Gated {
			if request.Body, err = receive(w, r, caller, plain, limit, request.Deadline); err != nil {
				call.Complete(err)
				return err
			}
		}
		upstream, ok := call.Plain().(*plainUpstream)
		if !ok {
			return relay(w, connectionOf(r).share, call, request)
		}
		if !plain {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(request.Body)), int64(len(request.Body))
		}
		setTrace(r.Header, request)
		upstream.proxy(w, r, call, request.Method)
		return nil // the client has its answer
	})
	if err != nil && call != nil {
		setWorkerHeaders(w.Header(), call)
	}
	return err
}

func (g *Gateway) notifyLease(w http.ResponseWriter, r *http.Request) error {
	id, authority := leaseOf(r)
	ref, err := api.ParseLeaseID(id)
	if err != nil {
		return err
	}
	request, timeout, err := callRequest(r, "notify", false)
	if err != nil {
		return err
	}
	request.Deadline = g.Deadline(ref.Pool, timeout)
	_, limit, err := g.RequestFormat(r.Context(), ref.Pool)
	if err != nil {
		return err
	}
	if request.Body, err = readBody(w, r, limit, request.Deadline); err != nil {
		return err
	}
	if err = g.Notify(r.Context(), id, authority, request); err == nil {
		w.WriteHeader(http.StatusAccepted)
	}
	return err
}

// callRequest reads the method and the headers of a call, whose path ends in verb/METHOD, and the timeout that it asks
// for, 0 for none. The method of plain HTTP is a path of any length.
func callRequest(r *http.Request, verb string,
	plain bool) (request pool.Request, timeout time.Duration, err error) {
	request.Method = r.PathValue("method")
	if request.Method == "" {
		return request, 0, api.Errorf(api.CodeInvalid, "the path names no method; it must end in /%s/METHOD", verb)
	}
	if length := len(request.Method); length > wire.MaxMethod && !plain {
		return request, 0, api.Errorf(api.CodeInvalid, "the method has %d bytes; at most %d are allowed", length,
			wire.MaxMethod)
	}
	request.Key = r.Header.Get(api.HeaderKey)
	ms, err := integer(r.Header, api.HeaderTimeout, 0, 1, MaxCallTimeout.Milliseconds())
	request.Headers, request.Trace = headersToWorker(r.Header), connectionOf(r).unsampled
	return request, time.Duration(ms) * time.Millisecond, err
}

// relay runs the call and writes its answer; a streamed answer is written chunk by chunk. It returns an error only if
// nothing was written. It panics with http.ErrAbortHandler when an answer breaks off, so that the client sees that it
// is incomplete.
func relay(w http.ResponseWriter, share *memoryShare, call *pool.Call, request pool.Request) error {
	var stream *http.ResponseController
	request.OnChunk = func(chunk []byte, contentType string) error {
		if stream == nil {
			stream = http.NewResponseController(w)
			setWorkerHeaders(w.Header(), call)
			w.Header().Set("Content-Type", cmp.Or(contentType, "application/octet-stream"))
			w.WriteHeader(http.StatusOK)
		}
		return writeChunk(stream, w, chunk)
	}
	response, err := call.Exchange(request)
	switch {
	case err != nil && stream != nil:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case stream != nil:
		if len(response.Body) > 0 && writeChunk(stream, w, response.Body) != nil {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	if err := share.holdAnswer(int64(len(response.Body))); err != nil {
		return err
	}
	headersFromWorker(w.Header(), response.Headers)
	setWorkerHeaders(w.Header(), call)
	w.Header().Set("Content-Length", strconv.Itoa(len(response.Body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(response.Body) // fails only if the client is gone, or reads too slowly
	return nil
}

func writeChunk(stream *http.ResponseController, w io.Writer, chunk []byte) error {
	_, err := w.Write(chunk)
	if err == nil {
		err = stream.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", pool.ErrClientGone, err)
	}
	return nil
}

// forwarded reports whether a header passes between client and worker: the session, tracing, the body's type, and every
// X- header.
func forwarded(key string) bool {
	switch key {
	case "Traceparent", "Tracestate", "Baggage", "Content-Type", "Content-Language", api.HeaderSession:
		return true
	}
	return strings.HasPrefix(key, "X-")
}

// headersToWorker returns the headers that the worker gets, with lower-case names. The content type of JSON is left
// out.
func headersToWorker(h http.Header) map[string]string {
	var out map[string]string
	for key, values := range h {
		if len(values) == 0 || !forwarded(key) || key == "Content-Type" && values[0] == "application/json" {
			continue
		}
		if out == nil {
			out = make(map[string]string, 4)
		}
		out[strings.ToLower(key)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	if h["Traceparent"] != nil || h["Tracestate"] != nil {
		span := tracecontext.FromHTTP(h) // without it, a worker would have to distrust its host
		setOrDelete(out, tracecontext.Traceparent, span.IsValid(), h.Get("Traceparent"))
		state := span.TraceState().String()
		setOrDelete(out, tracecontext.Tracestate, state != "", state)
	}
	return out
}

func setOrDelete(headers map[string]string, key string, set bool, value string) {
	if set {
		headers[key] = value
	} else {
		delete(headers, key)
	}
}

// setTrace gives the headers of a request to a worker of plain HTTP the trace of the call.
func setTrace(h http.Header, r pool.Request) {
	parent, state := r.Headers[tracecontext.Traceparent], r.Headers[tracecontext.Tracestate]
	if !r.Trace.IsZero() {
		parent, state = r.Trace.Parent(), r.Trace.State
	}
	for key, value := range map[string]string{"Traceparent": parent, "Tracestate": state} {
		h.Del(key)
		if value != "" {
			h.Set(key, value)
		}
	}
}

// headersFromWorker adds the headers of the worker's answer, which is JSON by default.
func headersFromWorker(h http.Header, headers map[string]string) {
	h.Set("Content-Type", "application/json")
	for key, value := range headers {
		if key = http.CanonicalHeaderKey(key); value != "" && forwarded(key) && key != api.HeaderSession {
			h.Set(key, value)
		}
	}
}

// isSet reads a parameter of a query that is true or false; its name alone is true.
func isSet(query url.Values, name string, unset bool) (bool, error) {
	switch text := query.Get(name); {
	case !query.Has(name):
		return unset, nil
	case text == "", text == "1", text == "true":
		return true, nil
	case text == "0", text == "false":
		return false, nil
	default:
		return unset, api.Errorf(api.CodeInvalid, "%s is %q; it must be true or false", name, text)
	}
}

// integer reads a header, or a parameter of a query, that is an integer from least to most; unset is its value if it is
// missing.
func integer[N int | int64](from interface{ Get(string) string }, name string, unset, least, most N) (N, error) {
	text := from.Get(name)
	if text == "" {
		return unset, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < int64(least) || n > int64(most) {
		return 0, api.Errorf(api.CodeInvalid, "%s is %q; it must be an integer from %d to %d", name, text, least, most)
	}
	return N(n), nil
}

// workerSandbox gives a page of a worker an origin of its own: it shares the gateway's address with the dashboard, and
// must not act there as the visitor who has signed in.
const workerSandbox = "sandbox allow-scripts allow-forms"

// setWorkerHeaders names the process that served the call, and takes from its answer what would reach beyond it in a
// browser. It is called after the worker's own headers are set.
func setWorkerHeaders(h http.Header, call *pool.Call) {
	h.Set(api.HeaderWorker, call.Worker())
	h.Set(api.HeaderIncarnation, strconv.FormatInt(call.Incarnation(), 10))
	h.Add("Content-Security-Policy", workerSandbox) // each policy holds
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("Service-Worker-Allowed")
	h.Del("Clear-Site-Data")
	h.Del(api.HeaderRefused) // only the gateway says so
	if h["Set-Cookie"] == nil {
		return
	}
	cookies := slices.DeleteFunc(h["Set-Cookie"], func(cookie string) bool {
		name := strings.ToLower(strings.TrimLeft(cookie, " \t=")) // browsers send a cookie without a name as its value alone
		return strings.HasPrefix(name, ui.CookiePrefix)
	})
	if h["Set-Cookie"] = cookies; len(cookies) == 0 {
		delete(h, "Set-Cookie")
	}
}
