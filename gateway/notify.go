package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

// Notify sends a request that the worker does not answer, under a client's lease: it returns when the bytes are on their way, and only
// the worker knows what becomes of them. It counts as a call. What a worker gets under one lease it gets in the order in which
// Notify and Call were made, as long as each was begun after the one before had returned. A worker of protocol none takes no
// notifications, which is CodeInvalid; other errors are as Call's.
func (g *Gateway) Notify(ctx context.Context, leaseID string, r Request) error {
	f, stop := g.newFlight(ctx, 0)
	defer stop()
	if err := g.enter(f.ctx, leaseID, f); err != nil {
		return g.refusal(f, err)
	}
	err := f.notify(r)
	f.seat.desk.end(f, err)
	return err
}

func (f *flight) notify(r Request) error {
	if f.seat.conn == nil {
		return api.Errorf(api.CodeInvalid, "%s speaks plain HTTP (protocol none), which has no notifications; call it instead", f.seat.worker)
	}
	request := wire.Request{Method: r.Method, Headers: r.Headers, Payload: r.Body}
	if r.Session != "" && request.Headers[sessionHeader] == "" {
		request.Headers = withHeader(r.Headers, sessionHeader, r.Session)
	}
	if err := f.seat.conn.Notify(f.ctx, request); err != nil {
		return f.explain(r.Method, err)
	}
	return nil
}

// notifyLease is POST /v1/leases/{id}/notify/{method}.
func (g *Gateway) notifyLease(w http.ResponseWriter, r *http.Request) {
	id, method := r.PathValue("id"), r.PathValue("method")
	ref, err := api.ParseLeaseID(id)
	if err == nil && method == "" {
		err = api.Errorf(api.CodeInvalid, "the path names no method; it ends in /notify/METHOD")
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	timeout, err := number(r.Header, HeaderTimeout, 0, 1, MaxCallTimeout.Milliseconds())
	if err != nil {
		writeProblem(w, err)
		return
	}
	ctx, stop := g.withDeadline(r.Context(), time.Duration(timeout)*time.Millisecond)
	defer stop()
	_, limit := g.speaks(ref.Pool)
	body, giveBack, err := g.readBody(ctx, w, r, limit)
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer giveBack()
	if err := g.Notify(ctx, id, Request{Method: method, Headers: headersToWorker(r.Header), Body: body}); err != nil {
		writeProblem(w, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
