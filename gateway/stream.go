package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// writePatience is how long a client may leave a piece of an answer unread.
const writePatience = 30 * time.Second

// callPool is POST /v1/pools/{pool}/call/{method}.
func (g *Gateway) callPool(w http.ResponseWriter, r *http.Request) {
	pool := r.PathValue("pool")
	priority, err := number(r.Header, HeaderPriority, DefaultPriority, MinPriority, MaxPriority)
	if err != nil {
		writeProblem(w, err)
		return
	}
	g.serveCall(w, r, pool, func(f *flight) error {
		return g.place(pool, f, r.Header.Get(HeaderSession), int(priority))
	}, callAttempts)
}

// callLease is POST /v1/leases/{id}/call/{method}.
func (g *Gateway) callLease(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	ref, err := api.ParseLeaseID(id)
	if err != nil {
		writeProblem(w, err)
		return
	}
	g.serveCall(w, r, ref.Pool, func(f *flight) error { return g.enter(f.ctx, id, f) }, 1)
}

// serveCall begins a call through begin and answers with what the worker answers.
func (g *Gateway) serveCall(w http.ResponseWriter, r *http.Request, pool string, begin func(*flight) error, attempts int) {
	method := r.PathValue("method")
	if method == "" {
		writeProblem(w, api.Errorf(api.CodeInvalid, "the path names no method; it ends in /call/METHOD"))
		return
	}
	timeout, err := number(r.Header, HeaderTimeout, 0, 1, MaxCallTimeout.Milliseconds())
	if err != nil {
		writeProblem(w, err)
		return
	}
	ctx, stop := g.withDeadline(r.Context(), time.Duration(timeout)*time.Millisecond)
	defer stop()
	plain, limit := g.speaks(pool)
	var payload []byte
	if plain {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
	} else { // read before a worker is taken, so that a slow client keeps none from others
		var giveBack func()
		if payload, giveBack, err = g.readBody(ctx, w, r, limit); err != nil {
			writeProblem(w, err)
			return
		}
		defer giveBack()
	}
	request := Request{Method: method, Headers: headersToWorker(r.Header), Body: payload}
	for attempt := 1; ; attempt++ {
		f := newFlight(ctx)
		if !plain {
			f.prepare(request)
		}
		if err := begin(f); err != nil {
			writeProblem(w, g.refusal(f, err))
			return
		}
		if f.seat.conn == nil {
			if !plain {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(payload)), int64(len(payload))
			}
			_ = f.proxy(w, r, method) // it has told the client
			return
		}
		err := f.relay(w, request)
		if err == nil || attempt >= attempts || !errors.Is(err, api.ErrWorkerCrashed) || started(err) {
			if err != nil {
				f.name(w.Header())
				writeProblem(w, err)
			}
			return
		}
	}
}

// speaks tells whether the pool's workers are spoken to in plain HTTP, and how large a request they take, as far as this host
// knows the pool.
func (g *Gateway) speaks(pool string) (plain bool, limit int64) {
	d := g.knownDesk(pool)
	if d == nil {
		d, _ = g.discover(pool)
	}
	if d == nil {
		return false, int64(spec.Default().Pool.MaxMessage)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		return false, int64(spec.Default().Pool.MaxMessage)
	}
	return d.spec.Pool.Protocol == spec.ProtocolNone, int64(d.spec.Pool.MaxMessage)
}

// relay runs the call and writes its answer; an answer that comes in pieces is passed on piece by piece. It returns an error only
// while the client can still be told; it panics with http.ErrAbortHandler when an answer breaks off, so that the client
// sees that something is missing.
func (f *flight) relay(w http.ResponseWriter, request Request) error {
	var stream *http.ResponseController
	request.OnChunk = func(chunk []byte) error {
		if stream == nil {
			stream = http.NewResponseController(w)
			f.name(w.Header())
			w.Header().Set("Content-Type", "application/octet-stream")
			w.WriteHeader(http.StatusOK)
		}
		return writePiece(stream, w, chunk)
	}
	response, err := f.run(request)
	f.seat.desk.end(f, err)
	switch {
	case err != nil && stream != nil:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case stream != nil:
		if len(response.Body) > 0 && writePiece(stream, w, response.Body) != nil {
			panic(http.ErrAbortHandler)
		}
		_ = stream.SetWriteDeadline(time.Time{}) // the connection's next answer has its own
		return nil
	}
	f.name(w.Header())
	headersFromWorker(w.Header(), response.Headers)
	w.Header().Set("Content-Length", strconv.Itoa(len(response.Body)))
	w.WriteHeader(http.StatusOK)
	writeWhole(w, response.Body)
	return nil
}

// pieceSize is how much of an answer that is there as a whole is written between two looks at the clock, in bytes. It is about what a
// connection takes without its client reading.
const pieceSize = 64 << 10

// writeWhole writes an answer; one that is not small is given up when the client leaves a piece of it unread for too long, so that it
// does not keep its memory for ever. A client that is gone reads nothing.
func writeWhole(w http.ResponseWriter, body []byte) {
	if len(body) <= pieceSize {
		_, _ = w.Write(body)
		return
	}
	stream := http.NewResponseController(w)
	for len(body) > 0 {
		piece := body[:min(len(body), pieceSize)]
		body = body[len(piece):]
		_ = stream.SetWriteDeadline(time.Now().Add(writePatience))
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
	_ = stream.SetWriteDeadline(time.Time{}) // the connection's next answer has its own
}

func writePiece(stream *http.ResponseController, w io.Writer, piece []byte) error {
	_ = stream.SetWriteDeadline(time.Now().Add(writePatience)) // not every writer has deadlines, recorders of tests for one
	_, err := w.Write(piece)
	if err == nil {
		err = stream.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return nil
}

// name tells the client which process served the call.
func (f *flight) name(h http.Header) {
	if f.seat != nil {
		h.Set(HeaderWorker, f.seat.worker)
		h.Set(HeaderIncarnation, strconv.FormatInt(f.seat.incarnation, 10))
	}
}

// passed are the headers that go through in both directions besides those that begin with X-.
func passed(key string) bool {
	switch key {
	case "Traceparent", "Tracestate", "Baggage", "Content-Type", "Content-Language", HeaderSession:
		return true
	}
	return strings.HasPrefix(key, "X-")
}

// headersToWorker are the headers of a request that its worker sees: the session, tracing, the body's kind, and every X- header,
// with lower-case names. JSON needs no mention.
func headersToWorker(h http.Header) map[string]string {
	var out map[string]string
	for key, values := range h {
		if len(values) == 0 || !passed(key) || key == "Content-Type" && values[0] == "application/json" {
			continue
		}
		if out == nil {
			out = make(map[string]string, 4)
		}
		out[strings.ToLower(key)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}

// headersFromWorker adds what the worker says about its answer, which is JSON unless it says otherwise.
func headersFromWorker(h http.Header, headers map[string]string) {
	h.Set("Content-Type", "application/json")
	for key, value := range headers {
		if key = http.CanonicalHeaderKey(key); value != "" && passed(key) && key != HeaderSession {
			h.Set(key, value)
		}
	}
}

// number reads a header that is a whole number from least to most; what when it is not there.
func number(h http.Header, name string, what, least, most int64) (int64, error) {
	text := h.Get(name)
	if text == "" {
		return what, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, api.Errorf(api.CodeInvalid, "%s is %q; it must be a whole number from %d to %d", name, text, least, most)
	}
	return n, nil
}
