package host

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// Stats counts what happens to sessions.
type Stats interface {
	Opened(store string)
	Used(store, operation string, took time.Duration, err error)
	Created(store string)
	Removed(store string, why sessions.Removal, n int)
	Moved(done bool)
}

// Observer counts and emits what happens to sessions at this agent.
type Observer struct {
	HostID string
	Stats  Stats
	Emit   api.Emit
}

// removed emits the events of sessions that a store has expired or evicted. Pools may share the store, so its events
// are the host's.
func (o *Observer) removed(store string) func(why sessions.Removal, n int, ids []string) {
	eventType := map[sessions.Removal]string{sessions.Evicted: api.EventSessionEvicted,
		sessions.Expired: api.EventSessionExpired}
	return func(why sessions.Removal, n int, ids []string) {
		o.Stats.Removed(store, why, n)
		for _, id := range ids {
			o.Emit(eventType[why], api.HostSource(o.HostID), time.Now(),
				api.SessionEvent{Host: o.HostID, Session: id, Store: store})
		}
	}
}

// observedStore is the store of a pool, with its use counted. pool is "" for a caller that names none.
type observedStore struct {
	sessions.Store
	kind, pool string
	to         *Observer
}

// used counts an operation that has ended with *err.
func (s observedStore) used(operation string, began time.Time, err *error) {
	s.to.Stats.Used(s.kind, operation, time.Since(began), *err)
}

func (s observedStore) Put(ctx context.Context, given *sessions.Session, to sessions.Purpose) (stored *sessions.Session,
	did sessions.Restored, err error) {
	defer s.used(string(to), time.Now(), &err)
	stored, did, err = s.Store.Put(ctx, given, to)
	if did != sessions.RestoredNew {
		return stored, did, err
	}
	s.to.Stats.Created(s.kind)
	source := api.HostSource(s.to.HostID)
	if s.pool != "" {
		source = api.PoolSource(s.pool)
	}
	s.to.Emit(api.EventSessionCreated, source, time.Now(),
		api.SessionEvent{Host: s.to.HostID, Session: given.ID, Store: s.kind})
	return stored, did, err
}

func (s observedStore) Get(ctx context.Context, id string) (_ *sessions.Session, err error) {
	defer s.used("get", time.Now(), &err)
	return s.Store.Get(ctx, id)
}

func (s observedStore) Update(ctx context.Context, id string,
	change func(*sessions.Session) error) (_ *sessions.Session, err error) {
	defer s.used("update", time.Now(), &err)
	return s.Store.Update(ctx, id, change)
}

func (s observedStore) Delete(ctx context.Context, id string) (err error) {
	defer s.used("delete", time.Now(), &err)
	return s.Store.Delete(ctx, id)
}

func (s observedStore) IDs(ctx context.Context) (_ []string, err error) {
	defer s.used("list", time.Now(), &err)
	return s.Store.IDs(ctx)
}

// MoveSession binds a session to the worker to, closed or not, unless it is bound to a worker other than from and to.
// It reports whether the session is now bound to that worker, and counts and emits the move.
func (s *Stores) MoveSession(pool, session, from, to string) bool {
	was, done := s.Affinity.Put(pool, session, to, func(bound string, _ bool) bool {
		return bound == "" || bound == from || bound == to
	})
	s.observer.Stats.Moved(done)
	if done && was != to { // else it is a repetition
		s.observer.Emit(api.EventSessionMigrated, api.PoolSource(pool), time.Now(),
			api.SessionEvent{Host: s.hostID, Session: session, From: from, Worker: to})
	}
	return done
}

// LiveSessions counts the live sessions of the stores that this agent has opened, by kind. It leaves out stores that do
// not answer.
func (s *Stores) LiveSessions(ctx context.Context) map[string]int {
	live := map[string]int{}
	for _, known := range s.all() {
		if n, err := known.store.Count(ctx); err == nil {
			live[known.current().Store] += n
		}
	}
	return live
}
