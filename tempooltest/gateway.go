// Package tempooltest tests programs that call pools, without workers: a gateway on a loopback port, whose answers the
// test scripts.
package tempooltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// Gateway has the pools whose methods a test has scripted, each with Size workers. Calls never wait: without a free
// worker they fail with queue_timeout.
type Gateway struct {
	Endpoint string

	size  int
	mu    sync.Mutex
	pools map[string]*pool
	calls []Call
	seq   int64
}

// Call is a call that came in.
type Call struct {
	Pool, Worker, Method string
	Body                 []byte
	Header               http.Header
	Lease                string // its ID; "" for a call of the pool
}

// Func computes an answer of a script.
type Func func(Call) (any, error)

// Stream is an answer in values, each a line of JSON. An error breaks it off.
type Stream = iter.Seq2[any, error]

type pool struct {
	scripts map[string][]any
	workers []*worker
}

type worker struct {
	name        string
	slot        int
	incarnation int64
	lease       *api.Lease
	until       time.Time
}

const defaultTTL = time.Minute

// Crash is the answer of a process that ends in the middle of the call: the caller gets worker_crashed, leases on the
// worker are fenced, and its next process has a higher incarnation.
func Crash() error {
	return &api.Error{Code: api.CodeWorkerCrashed, Message: "the process ended during the call", Started: true}
}

// NewGateway starts a gateway whose pools have size workers. It ends with the test.
func NewGateway(t testing.TB, size int) *Gateway {
	g := &Gateway{size: max(size, 1), pools: map[string]*pool{}}
	server := httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(server.Close)
	g.Endpoint = server.URL
	return g
}

// Client returns a client of this gateway alone, without Temporal. It is closed at the end of the test.
func (g *Gateway) Client(t testing.TB) *tempool.Client {
	c, err := tempool.Dial(t.Context(), tempool.Options{Gateways: []string{g.Endpoint}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// On scripts the answers of a method: each call gets the next, and the last one stays. An answer is a value, sent as
// JSON; an error, of the gateway if it is a *tempool.Error, else of the worker; a Stream; or a Func that returns one.
func (g *Gateway) On(name, method string, answers ...any) *Gateway {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.pools[name]
	if p == nil {
		p = &pool{scripts: map[string][]any{}}
		for slot := range g.size {
			p.workers = append(p.workers, &worker{name: api.WorkerName(name, slot), slot: slot, incarnation: 1})
		}
		g.pools[name] = p
	}
	p.scripts[method] = answers
	return g
}

// Fence ends the leases of a pool, as if they had expired: the next request under one fails with lease_fenced.
func (g *Gateway) Fence(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.pools[name].workers {
		w.lease = nil
	}
}

// Calls returns the calls that came in.
func (g *Gateway) Calls() []Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Call(nil), g.calls...)
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has broken off
	}
	if err := g.route(w, r, body); err != nil {
		refuse(w, err)
	}
}

func (g *Gateway) route(w http.ResponseWriter, r *http.Request, body []byte) error {
	parts := append(strings.SplitN(strings.TrimPrefix(r.URL.Path, "/v1/"), "/", 4), "", "", "")
	kind, id, verb, method := parts[0], parts[1], parts[2], parts[3]
	switch {
	case kind == "leases":
		return g.underLease(w, r, id, verb, method, body)
	case kind != "pools" || verb != "call" && verb != "leases":
		return api.Errorf(api.CodeInvalid, "the fake gateway has no route %s", r.URL.Path)
	}
	g.mu.Lock()
	p := g.pools[id]
	free := p.free()
	if free != nil && verb == "leases" {
		defer g.mu.Unlock() // another request could choose the same worker
		return g.grantLocked(w, id, free, body)
	}
	g.mu.Unlock()
	switch {
	case p == nil:
		return api.Errorf(api.CodePoolNotFound, "pool %s is not running", id)
	case free == nil:
		return api.Errorf(api.CodeQueueTimeout, "no worker is free")
	}
	return g.answer(w, p, free, Call{Pool: id, Method: method, Body: body, Header: r.Header})
}

// free returns a worker without a lease, if there is one.
func (p *pool) free() *worker {
	if p != nil {
		for _, w := range p.workers {
			if !w.leased() {
				return w
			}
		}
	}
	return nil
}

func (w *worker) leased() bool { return w.lease != nil && time.Now().Before(w.until) }

func (w *worker) renew(ttl time.Duration) {
	w.until = time.Now().Add(ttl)
	w.lease.ExpiresAt = w.until
}

// asked is what requests about leases say.
type asked struct {
	Holder, Session, Token string
	TTLMS                  int64 `json:"ttl_ms"`
}

func (a asked) ttl() time.Duration {
	if a.TTLMS > 0 {
		return time.Duration(a.TTLMS) * time.Millisecond
	}
	return defaultTTL
}

func (g *Gateway) grantLocked(w http.ResponseWriter, name string, free *worker, body []byte) error {
	var a asked
	if err := json.Unmarshal(body, &a); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	g.seq++
	free.lease = &api.Lease{ID: api.LeaseID(name, free.slot, free.incarnation, g.seq), Worker: free.name,
		Incarnation: free.incarnation, Seq: g.seq, Holder: a.Holder, Session: a.Session, Endpoint: g.Endpoint,
		GrantedAt: time.Now(), Token: a.Token}
	free.renew(a.ttl())
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(free.lease)
}

func (g *Gateway) underLease(w http.ResponseWriter, r *http.Request, id, verb, method string, body []byte) error {
	ref, err := api.ParseLeaseID(id)
	if err != nil {
		return err
	}
	g.mu.Lock()
	p := g.pools[ref.Pool]
	if p == nil || ref.Slot >= len(p.workers) {
		g.mu.Unlock()
		return api.Errorf(api.CodeLeaseNotFound, "lease %s was never granted", id)
	}
	held := p.workers[ref.Slot]
	switch {
	case !held.leased() || held.lease.ID != id:
		err = api.Errorf(api.CodeLeaseFenced, "lease %s has ended", id)
	case r.Header.Get(api.HeaderLeaseToken) != held.lease.Token:
		err = api.Errorf(api.CodeForbidden, "the token of the lease is missing or wrong")
	case r.Method == http.MethodPut:
		var a asked
		if err = json.Unmarshal(body, &a); err == nil {
			held.renew(a.ttl())
			err = json.NewEncoder(w).Encode(held.lease)
		}
	case r.Method == http.MethodDelete:
		held.lease = nil
		err = json.NewEncoder(w).Encode(api.CheckinResult{State: "ready"})
	}
	g.mu.Unlock()
	if err != nil || r.Method != http.MethodPost {
		return err
	}
	call := Call{Pool: ref.Pool, Method: method, Body: body, Header: r.Header, Lease: id}
	if verb == "notify" {
		g.record(held, &call)
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	return g.answer(w, p, held, call)
}

// record records a call, and returns the incarnation that gets it.
func (g *Gateway) record(on *worker, call *Call) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	call.Worker = on.name
	g.calls = append(g.calls, *call)
	return on.incarnation
}

func (g *Gateway) answer(w http.ResponseWriter, p *pool, on *worker, call Call) error {
	incarnation := g.record(on, &call)
	answer, err := g.next(p, call)
	if err != nil {
		g.crashed(on, err)
		return err
	}
	w.Header().Set(api.HeaderWorker, on.name)
	w.Header().Set(api.HeaderIncarnation, strconv.FormatInt(incarnation, 10))
	stream, is := answer.(Stream)
	if !is {
		return json.NewEncoder(w).Encode(answer)
	}
	begun := false
	for value, err := range stream {
		if err == nil {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			err = errors.Join(json.NewEncoder(w).Encode(value), http.NewResponseController(w).Flush())
		}
		switch {
		case err != nil && begun:
			g.crashed(on, err)
			panic(http.ErrAbortHandler) // the client sees that the answer is incomplete
		case err != nil:
			return err
		}
	}
	return nil
}

// next returns the answer to a call.
func (g *Gateway) next(p *pool, call Call) (answer any, err error) {
	g.mu.Lock()
	script := p.scripts[call.Method]
	if len(script) > 1 {
		p.scripts[call.Method] = script[1:]
	}
	g.mu.Unlock()
	if len(script) == 0 {
		return nil, &api.Error{Code: api.CodeMethodNotFound, Message: "method " + call.Method + " not found", Started: true}
	}
	answer = script[0]
	if compute, is := answer.(Func); is {
		if answer, err = compute(call); err != nil {
			return nil, err
		}
	}
	if failure, is := answer.(error); is {
		return nil, failure
	}
	return answer, nil
}

// crashed ends the process of a worker if err says so.
func (g *Gateway) crashed(on *worker, err error) {
	if coded, is := errors.AsType[*api.Error](err); is && coded.Code == api.CodeWorkerCrashed && coded.Started {
		g.mu.Lock()
		defer g.mu.Unlock()
		on.incarnation++
		on.lease = nil
	}
}

// refuse answers with an error: of the gateway, or of the worker if it has no code.
func refuse(w http.ResponseWriter, err error) {
	problem := map[string]any{"code": api.CodeWorkerError, "detail": err.Error(), "started": true}
	status := http.StatusInternalServerError
	if coded, is := errors.AsType[*api.Error](err); is {
		problem = map[string]any{"code": coded.Code, "detail": coded.Message, "started": coded.Started,
			"retry_after_ms": coded.RetryAfter.Milliseconds()}
		status = http.StatusServiceUnavailable
	}
	if problem["code"] == api.CodeWorkerError {
		failure, is := errors.AsType[*api.WorkerError](err)
		if !is {
			failure = &api.WorkerError{Code: "error", Type: fmt.Sprintf("%T", err), Message: err.Error(), Unhandled: true}
		}
		problem["worker_error"] = failure
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem)
}
