package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

const (
	// recordKey is the metadata of a reserved session of the pool's store that holds a record.
	recordKey = "mcp"
	// storeTimeout bounds each use of the store.
	storeTimeout = 5 * time.Second
	// maxRecord bounds a record, in bytes: clients without access to the store must not fill it.
	maxRecord = 256 << 10
	// maxParams bounds the params of initialize, in bytes: the session keeps them.
	maxParams = 64 << 10
	// recordShare is the part of mcp.park after which the record of a session in use is written again, so that it stays.
	// That of one with a process is with each renewal of its lease, so that a host which was taken for dead learns soon
	// that another one has continued the session.
	recordShare = 8
	// endedFor is how long the record of a session that has ended stays where another host could write it again.
	endedFor = spec.Duration(time.Hour)
)

// record is what outlives the process of a session, its idle time and its agent, for mcp.park. It is in the pool's
// session store, where clients and workers do not reach it. The values of mcp.env are not among it: each request brings
// its headers.
type record struct {
	Pool        string          `json:"pool"`
	Principal   string          `json:"principal"`
	Host        string          `json:"host"` // whose gateway serves it
	Begun       time.Time       `json:"begun"`
	Params      json.RawMessage `json:"params,omitempty"`
	Initialized bool            `json:"initialized,omitempty"`
	Level       json.RawMessage `json:"level,omitempty"`
	Subscribed  []string        `json:"subscribed,omitempty"`
	Lease       string          `json:"lease,omitempty"` // on its process, which an agent may have handed to the next one
}

func recordIn(kept *sessions.Session) (r record) {
	_ = json.Unmarshal(kept.Metadata[recordKey], &r)
	return r
}

// save writes the record of a session that has begun and has not ended.
func (e *Endpoint) save(ctx context.Context, s *session) {
	if s.mcp.Park <= 0 || s.id == "" {
		return
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	ended := s.ended
	text, err := json.Marshal(record{Pool: s.pool, Principal: s.principal, Host: e.config.HostID, Begun: s.begun,
		Params: s.params, Initialized: s.initialized, Level: s.level, Lease: s.lease,
		Subscribed: slices.Collect(maps.Keys(s.subscribed))})
	s.savedAt = time.Now()
	s.mu.Unlock()
	if ended {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	set := func(kept *sessions.Session) error {
		if now := recordIn(kept); now.Host != "" && now.Host != e.config.HostID {
			return taken(now.Host)
		}
		kept.Metadata = map[string]json.RawMessage{recordKey: text}
		kept.TTL = spec.Duration(min(s.mcp.Park.D(), sessions.MaxTTL))
		return nil
	}
	var store sessions.Store
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("its initialize and subscriptions take %d bytes, more than %d", len(text), maxRecord)
	}
	if err == nil {
		store, err = e.config.Store(ctx, s.pool)
	}
	if err == nil {
		if _, err = store.Update(ctx, holderOf(s.id), set); api.CodeOf(err) == api.CodeSessionNotFound {
			first := &sessions.Session{ID: holderOf(s.id)}
			_ = set(first)
			_, err = sessions.Create(ctx, store, first)
		}
	}
	if first, is := errors.AsType[taken](err); is {
		e.drop(s, first.Error()) // it has taken this one for dead
	} else if err != nil && !s.unsaved {
		e.config.Logger.Warn("an MCP session is not in the session store: it ends with this agent, or when it is idle",
			"pool", s.pool, "error", err)
	}
	s.unsaved = err != nil
}

func (s *session) isSaved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.savedAt.IsZero()
}

// parked is an idle session of a principal. It is no more once the client has returned.
type parked struct{ id, principal string }

// park takes an idle session from memory. Its record stays, but no more of them than mcp.max_sessions, and of those of
// one principal than its limit: the oldest makes way, so that clients which come and go do not fill the store.
func (e *Endpoint) park(s *session) {
	e.drop(s, "idle (mcp.idle)")
	e.mu.Lock()
	all := append(e.parked[s.pool], parked{s.id, s.principal})
	own := slices.DeleteFunc(slices.Clone(all), func(p parked) bool { return p.principal != s.principal })
	forgotten := ""
	if most := s.mcp.MaxSessionsPerPrincipal; most > 0 && len(own) > most {
		forgotten = own[0].id
	} else if len(all) > s.mcp.MaxSessions {
		forgotten = all[0].id
	}
	e.parked[s.pool] = slices.DeleteFunc(all, func(p parked) bool { return p.id == forgotten })
	e.mu.Unlock()
	if forgotten != "" {
		e.run(func() { e.forget(s.pool, forgotten) })
	}
}

// beganAt is the host whose gateway has begun a session.
func beganAt(id string) string { return id[:max(strings.LastIndexByte(id, '.'), 0)] }

// forget ends the record of a session, unless that is another host's by now. That of a session which began at another
// host, which may still have it in memory, says for endedFor that it has ended.
func (e *Endpoint) forget(pool, id string) {
	ctx, cancel := context.WithTimeout(e.life, storeTimeout)
	defer cancel()
	store, err := e.config.Store(ctx, pool)
	if err == nil {
		_, err = store.Update(ctx, holderOf(id), func(kept *sessions.Session) error {
			if now := recordIn(kept); now.Host != e.config.HostID {
				return taken(now.Host)
			}
			text, err := json.Marshal(record{Host: e.config.HostID}) // nobody can claim it
			kept.Metadata, kept.TTL = map[string]json.RawMessage{recordKey: text}, endedFor
			return err
		})
	}
	if err == nil && beganAt(id) == e.config.HostID {
		err = store.Delete(ctx, holderOf(id))
	}
	if _, is := errors.AsType[taken](err); err != nil && !is && api.CodeOf(err) != api.CodeSessionNotFound {
		e.config.Logger.Warn("the record of an MCP session stays in the session store until mcp.park", "pool", pool,
			"error", err)
	}
}

// restore continues a session that is not known here: it has been idle, or its agent has been replaced. One of another
// host is an api.OtherHostError, unless that host is gone.
func (e *Endpoint) restore(ctx context.Context, id string, q Request) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var kept record
	var store sessions.Store
	var unread error // why the record is not known: its store may be on the other host, too
	if q.Spec.MCP.Park > 0 && sessions.CheckID(holderOf(id)) == nil {
		var err error
		var found *sessions.Session
		if store, err = e.config.Store(ctx, q.Pool); err == nil {
			found, err = store.Get(ctx, holderOf(id))
		}
		if err == nil {
			kept = recordIn(found)
		} else if api.CodeOf(err) != api.CodeSessionNotFound {
			unread = err
		}
	}
	host := kept.Host
	if host == "" {
		host = beganAt(id)
	}
	if host != "" && host != e.config.HostID && host != q.Gone && (!q.Here || kept.Host != "") {
		if to, err := e.config.Peer(ctx, q.Pool, host, kept.Pool != ""); err != nil || to.Endpoint != "" {
			return nil, cmp.Or(err, otherHost(to))
		}
	}
	if unread != nil {
		return nil, unread
	}
	if kept.Pool == "" && host != "" && host == q.Gone { // which may have a store of its own, and come back
		return nil, api.Errorf(api.CodeUnavailable, "host %s, which has the MCP session, does not answer", host).After(tick)
	}
	if kept.Pool != q.Pool || kept.Principal != q.Principal {
		return nil, errUnknown
	}
	if host != e.config.HostID || q.Spec.Sessions.Store == spec.StoreRedis {
		if err := e.noWorkersHere(ctx, q.Pool); err != nil {
			return nil, err
		}
	}
	if host != e.config.HostID {
		if err := e.assign(ctx, store, q.Pool, id, host, e.config.HostID); err != nil {
			return nil, err
		}
		if kept.Lease != "" {
			// its host, which may be replaced, has left it for long
			e.run(func() { _, _ = e.config.Pool.RenewHeld(e.life, kept.Lease, holderOf(id)) })
		}
	}
	s := newSession("", q)
	s.name(id)
	s.params, s.initialized, s.level, s.savedAt = kept.Params, kept.Initialized, kept.Level, time.Now()
	if !kept.Begun.IsZero() {
		s.begun = kept.Begun
	}
	for _, uri := range kept.Subscribed {
		s.subscribeLocked(uri) // nobody else has the session yet
	}
	e.countSubscriptions(s, 1)
	s.acquiring <- struct{}{}
	known, err := e.add(s)
	if known != s {
		e.countSubscriptions(s, -1)
		return known, err
	}
	defer func() { <-s.acquiring }()
	if s.mcp.Mode != spec.MCPSession {
		return s, nil
	}
	if kept.Lease != "" && host == e.config.HostID {
		granted, err := e.config.Pool.RenewHeld(ctx, kept.Lease, holderOf(id))
		if err == nil {
			if !e.bind(s, granted) {
				return nil, errUnknown
			}
			return s, nil
		}
	}
	if s.mcp.AfterCrash == spec.CrashEnd {
		e.endSession(s, "its process has ended (mcp.after_crash)")
		return nil, errUnknown
	}
	s.tell = s.mcp.AfterCrash == spec.CrashTell
	return s, nil
}

// otherHost is the answer to a request for a session of another host.
func otherHost(to api.Peer) error {
	return api.OtherHostError{Host: to.Host, Endpoint: to.Endpoint, Coded: api.Errorf(api.CodeNoWorkers,
		"the MCP session is on host %s", to.Host).After(time.Second)}
}

// taken is the error of a change to the record of a session that another host has claimed.
type taken string

func (host taken) Error() string { return "host " + string(host) + " has continued the session" }

// noWorkersHere is an api.OtherHostError while all workers of the pool are on other hosts. It is nil if they are yet to
// start, perhaps here.
func (e *Endpoint) noWorkersHere(ctx context.Context, pool string) error {
	if e.config.Pool.HasWorkers(pool) {
		return nil
	}
	err := e.config.Pool.Locate(ctx, pool, "")
	if api.CodeOf(err) == api.CodeWorkerNotFound {
		return nil
	}
	return err
}

// give has another host continue the session of a flight that waits for a process here: a worker is free there. The
// request is made again, here if the session stays. A flight waits on whose answer has begun, whose client has left, or
// that cannot go there.
func (e *Endpoint) give(ctx context.Context, f *flight, to pool.Place) (err error) {
	if to.Settled != nil {
		defer func() { to.Settled(err == nil) }()
	}
	if !e.config.Pool.Reaches(to.Peer) || !f.out.void() {
		return pool.ErrStays
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s := f.session
	store, err := e.config.Store(ctx, s.pool)
	if err == nil {
		err = e.assign(ctx, store, s.pool, s.id, e.config.HostID, to.Host)
	}
	if _, other := errors.AsType[api.OtherHostError](err); err == nil || other {
		e.drop(s, "it continues on another host, which has a free worker")
	}
	return nil
}

// assign makes a session of one host another one's. It fails with an api.OtherHostError if it is neither's.
func (e *Endpoint) assign(ctx context.Context, store sessions.Store, pool, id, from, host string) error {
	_, err := store.Update(ctx, holderOf(id), func(kept *sessions.Session) error {
		now := recordIn(kept)
		if now.Host != from && now.Host != host || now.Pool == "" {
			return taken(now.Host)
		}
		if now.Host == from { // else another request has done so, and it may have a lease
			now.Host, now.Lease = host, ""
		}
		text, err := json.Marshal(now)
		kept.Metadata[recordKey] = text
		return err
	})
	if first, is := errors.AsType[taken](err); is {
		to, _ := e.config.Peer(ctx, pool, string(first), true)
		to.Host = string(first)
		return otherHost(to)
	}
	return err
}

var errUnknown = &failure{http.StatusNotFound, codeSession,
	"this session is unknown here, or has ended; begin another one with initialize", nil}
