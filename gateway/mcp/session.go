package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

const (
	// maxWaiting bounds the messages that wait for a stream, whose bytes maxUnsent bounds, and maxAsked the server's
	// requests without an answer.
	maxWaiting = 64
	maxAsked   = 64
	// unheardAfter is how long a server's request waits for a stream.
	unheardAfter = 30 * time.Second
	// endTimeout bounds the return of a session's process.
	endTimeout = time.Minute
	// extendTimeout bounds the last renewals of leases.
	extendTimeout = 5 * time.Second
)

// session is a client, from initialize to its end.
type session struct {
	id, pool, principal string
	begun               time.Time
	mcp                 spec.MCP
	wait                time.Duration   // for a process
	absent              time.Duration   // how long its lease may last while no agent renews it
	params              json.RawMessage // of initialize
	modern              bool            // of one request, of a client without sessions
	call                pool.Request    // whose process it is: the principal as the key, and headers of initialize
	acquiring           chan struct{}   // has a token while a process is being acquired
	saving              sync.Mutex      // held while its record is written
	unsaved             bool            // the last write has failed; guarded by saving

	streams streams

	mu      sync.Mutex
	uses    int // requests, with those whose client has left, and streams
	used    time.Time
	ended   bool
	savedAt time.Time // zero before it has a record
	flights []*flight // requests in progress
	opened  []*stream // of requests, oldest first, and at most one of a GET
	waiting []undelivered
	asked   map[int64]wire.Incoming // the server's requests

	// Of mode session.
	lease       string // its ID; "" for none, before the first process and after a crash
	process     process
	renewAt     time.Time
	renewEvery  time.Duration
	tell        bool // the next tool call says that the process is new
	initialized bool
	level       json.RawMessage     // of logging/setLevel
	subscribed  map[string]struct{} // URIs of resources/subscribe
}

// undelivered is a message that waits for a stream; own is its id if it is a request.
type undelivered struct {
	message []byte
	own     int64
	at      time.Time
}

func newSession(host string, q Request) *session {
	var call pool.Request
	if q.Spec.IsolatedBy() == spec.IsolateKey {
		call.Key, call.Headers = strings.Replace(q.Principal, " ", "-", 1), q.Call.Headers // token ci: token-ci
	}
	s := &session{pool: q.Pool, principal: q.Principal, begun: time.Now().UTC(), mcp: q.Spec.MCP, call: call,
		wait: q.Spec.Queue.Timeout.D(), absent: min(max(q.Spec.MCP.Idle, q.Spec.Lease.TTL), q.Spec.Lease.MaxTTL).D(),
		acquiring: make(chan struct{}, 1), used: time.Now(), asked: map[int64]wire.Incoming{},
		subscribed: map[string]struct{}{}}
	s.streams.held = new(atomic.Int64) // until it is one of an Endpoint's
	if host != "" {                    // else it is that of one request, or its id is known
		s.name(host + "." + rand.Text())
	}
	return s
}

// lone reports whether the session has a process of its own.
func (s *session) lone() bool { return s.mcp.Mode == spec.MCPSession && !s.modern }

// add makes the session known, unless the pool has too many, and returns it, or the one that is known by its id.
func (e *Endpoint) add(s *session) (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.sessions[s.id]; known != nil {
		return known, nil
	}
	if _, ending := e.ending[s.id]; ending {
		return nil, errUnknown
	}
	where := func(other *session) (pool, principal string) { return other.pool, other.principal }
	if err := full(e.sessions, where, s, s.mcp, "MCP sessions"); err != nil {
		return nil, err
	}
	e.replays[s.pool] += 0 // the counts of its pool are reported from now on
	s.streams.held = &e.kept
	e.sessions[s.id] = s
	e.parked[s.pool] = slices.DeleteFunc(e.parked[s.pool], func(p parked) bool { return p.id == s.id })
	return s, nil
}

// full is the answer to another one of a pool, or of a principal, that has most of them; nil if neither has.
func full[T any](all map[string]T, where func(T) (pool, principal string), another T, limits spec.MCP,
	what string) error {
	pool, principal := where(another)
	n, own := 0, 0
	for _, other := range all {
		if p, of := where(other); p == pool {
			n++
			if of == principal {
				own++
			}
		}
	}
	of, key := "pool "+pool, "mcp.max_sessions"
	switch most := limits.MaxSessionsPerPrincipal; {
	case most > 0 && own >= most:
		n, of, key = own, principal+" at pool "+pool, "mcp.max_sessions_per_principal"
	case n < limits.MaxSessions:
		return nil
	}
	return api.Errorf(api.CodeUnavailable, "%s has %d %s (%s); end some, or wait until idle ones end", of, n, what,
		key).After(tick)
}

// sessionOf is the session that a request names, which the request has entered. A client of a shared process that names
// none has one for the request.
func (e *Endpoint) sessionOf(r *http.Request, q Request) (*session, error) {
	id := r.Header.Get(headerSession)
	if id == "" {
		if q.Spec.MCP.Mode != spec.MCPSession && r.Method == http.MethodPost {
			if e.speaks(spec.EraModern, q.Pool, q.Spec.MCP) {
				return nil, modernOnly(cmp.Or(r.Header.Get(headerVersion), versions[0]))
			}
			s := newSession("", q)
			s.enter()
			return s, nil
		}
		return nil, &failure{http.StatusBadRequest, codeRequest, "the header " + headerSession + " is missing", nil}
	}
	e.mu.Lock()
	s := e.sessions[id]
	e.mu.Unlock()
	anyHost := q.Spec.Sessions.Store == spec.StoreRedis // may continue it
	if anyHost && s != nil && s.pool == q.Pool && s.principal == q.Principal && s.isSaved() {
		err := e.noWorkersHere(r.Context(), q.Pool)
		if _, other := errors.AsType[api.OtherHostError](err); other {
			e.drop(s, "all workers of its pool are on other hosts")
			return nil, err
		}
	}
	for s == nil || !s.enter() { // it may be idle for too long just now
		var err error
		if s, err = e.restore(r.Context(), id, q); err != nil {
			return nil, err
		}
	}
	if s.pool != q.Pool || s.principal != q.Principal {
		s.leave()
		return nil, errUnknown
	}
	return s, nil
}

// endSession ends a session, and its process with it.
func (e *Endpoint) endSession(s *session, reason string) {
	saved := s.isSaved()
	if saved { // so that no request restores it
		e.mu.Lock()
		e.ending[s.id] = struct{}{}
		e.mu.Unlock()
	}
	e.drop(s, reason)
	if saved {
		e.run(func() {
			s.saving.Lock() // after a save that has begun
			defer s.saving.Unlock()
			e.forget(s.pool, s.id)
			time.AfterFunc(storeTimeout, func() { // a request may still have read it
				e.mu.Lock()
				defer e.mu.Unlock()
				delete(e.ending, s.id)
			})
		})
	}
}

// drop takes a session and its process from memory. Its record stays.
func (e *Endpoint) drop(s *session, reason string) {
	e.mu.Lock()
	if e.sessions[s.id] == s {
		delete(e.sessions, s.id)
	}
	e.mu.Unlock()
	s.mu.Lock()
	id := s.lease
	s.ended = true
	for _, f := range s.flights {
		f.cancel()
	}
	if get := s.getLocked(); get != nil {
		get.finish(nil)
	}
	s.mu.Unlock()
	e.countSubscriptions(s, -1)
	s.streams.end()
	if id != "" {
		e.unbind(s, id)
		e.config.Logger.Debug("an MCP session has ended", "pool", s.pool, "lease", id, "reason", reason)
		e.run(func() { e.release(id) })
	}
}

// holderOf is the holder of a session's lease, and the id of its record.
func holderOf(id string) string { return sessions.Reserved + id }

// release returns the lease of a session, so that its process ends.
func (e *Endpoint) release(id string) {
	ctx, cancel := context.WithTimeout(e.life, endTimeout)
	defer cancel()
	_, err := e.config.Pool.Checkin(ctx, id, lease.Operator, api.OutcomeClose, "its MCP session has ended")
	if err != nil && !isLost(err) {
		e.config.Logger.Warn("could not return the lease of an MCP session; it will expire", "lease", id, "error", err)
	}
}

// request is a request to the session's process.
func (s *session) request(method string, params json.RawMessage) pool.Request {
	r := s.call
	r.Method, r.Body = method, params
	return r
}

// bind gives the session a process. It reports false if the session has ended, and returns the lease.
func (e *Endpoint) bind(s *session, l *api.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		e.run(func() { e.release(l.ID) })
		return false
	}
	s.lease, s.process = l.ID, process{l.Worker, l.Incarnation}
	s.renewEvery = time.Duration(l.TTLMS) * time.Millisecond / 3
	s.renewAt = time.Now().Add(s.renewEvery)
	e.mu.Lock()
	e.processes[s.process] = s
	e.mu.Unlock()
	e.config.Events.Emit(api.EventSessionBound, api.PoolSource(s.pool), time.Now(), api.SessionEvent{
		Host: e.config.HostID, Session: s.id, Worker: l.Worker, Incarnation: l.Incarnation, Principal: s.principal})
	return true
}

// unbind takes the process from the session that it has by this lease, and reports whether it had.
func (e *Endpoint) unbind(s *session, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != id || id == "" {
		return false
	}
	e.mu.Lock()
	if e.processes[s.process] == s {
		delete(e.processes, s.process)
	}
	e.mu.Unlock()
	s.lease, s.process = "", process{}
	clear(s.asked)
	s.waiting = nil
	return true
}

// enter and leave enclose a request or a stream: the client is there. enter reports false if the session has ended.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.uses++
	}
	return !s.ended
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses--
	s.used = time.Now()
}

// check ends or parks an idle session, renews its lease and its record, and answers server's requests that nobody
// hears.
func (e *Endpoint) check(s *session, now time.Time) {
	s.mu.Lock()
	idle := s.uses == 0 && now.Sub(s.used) > s.mcp.Idle.D()
	s.ended = s.ended || idle // no request enters it any more
	id, renew := s.lease, s.lease != "" && now.After(s.renewAt)
	if renew {
		s.renewAt = now.Add(s.renewEvery)
	}
	parks := !s.savedAt.IsZero()
	save := parks && (renew || now.Sub(s.savedAt) > s.mcp.Park.D()/recordShare)
	if save {
		s.savedAt = now
	}
	var unheard []wire.Incoming
	s.waiting = slices.DeleteFunc(s.waiting, func(u undelivered) bool {
		late := u.own != 0 && now.Sub(u.at) > unheardAfter
		if late {
			if m, asked := s.asked[u.own]; asked {
				unheard = append(unheard, m)
			}
			delete(s.asked, u.own)
		}
		return late
	})
	s.mu.Unlock()
	s.streams.expire(now)
	for _, m := range unheard {
		refuse(m, "the client has no open stream")
	}
	if save {
		e.run(func() { e.save(e.life, s) })
	}
	switch {
	case idle && parks:
		e.park(s)
	case idle:
		e.endSession(s, "idle (mcp.idle)")
	case renew:
		e.run(func() { e.renew(s, id) })
	}
}

func (e *Endpoint) renew(s *session, id string) {
	ctx, cancel := context.WithTimeout(e.life, s.renewEvery)
	defer cancel()
	if _, err := e.config.Pool.Renew(ctx, id, lease.Operator, 0); isLost(err) {
		e.lost(s, id, "", err)
	}
}

// extend renews a lease of a session that no request here uses.
func (e *Endpoint) extend(ctx context.Context, id string, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, extendTimeout)
	defer cancel()
	_, _ = e.config.Pool.Renew(ctx, id, lease.Operator, ttl.Milliseconds()) // else it lasts as long as before
}

// getLocked is the stream of a GET that is open; nil for none.
func (s *session) getLocked() *stream {
	if i := slices.IndexFunc(s.opened, func(o *stream) bool { return o.isGet }); i >= 0 {
		return s.opened[i]
	}
	return nil
}

// openLocked adds a stream of the client, which gets what waits for one. That of a GET takes the place of the one
// before. It reports false if the session has ended, and the stream with it.
func (s *session) openLocked(out *stream) bool {
	if get := s.getLocked(); out.isGet && get != nil && get != out {
		get.finish(nil)
	}
	s.opened = append(slices.DeleteFunc(s.opened, func(o *stream) bool { return o == out || o.isGet && out.isGet }), out)
	if s.ended {
		out.finish(nil)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(u undelivered) bool { return out.push(u.message) })
	return !s.ended
}

// deliver sends a message to the client, on the stream of a GET first or on that of its oldest request first. It waits
// if there is no stream. It reports false if too much waits.
func (s *session) deliver(message []byte, own int64, getFirst bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, get := range []bool{getFirst, !getFirst} {
		if slices.ContainsFunc(s.opened, func(o *stream) bool { return o.isGet == get && o.push(message) }) {
			return true
		}
	}
	size := len(message)
	for _, u := range s.waiting {
		size += len(u.message)
	}
	if s.ended || len(s.waiting) >= maxWaiting || size > maxUnsent {
		return false
	}
	s.waiting = append(s.waiting, undelivered{message, own, time.Now()})
	return true
}

// answer passes the client's response on to the server's request. It reports false if there is none.
func (s *session) answer(m message) bool {
	own, err := strconv.ParseInt(string(m.ID), 10, 64)
	s.mu.Lock()
	asked, found := s.asked[own]
	delete(s.asked, own)
	s.mu.Unlock()
	if err != nil || !found {
		return false
	}
	asked.Answer(m.Result, m.Error)
	return true
}

var errEnded = &failure{http.StatusNotFound, codeSession, "this session has ended", nil}
