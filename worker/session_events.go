package worker

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/affinity"
	"github.com/tempool/tempool/worker/metrics"
)

// sessionObserver counts and emits what happens to sessions at this agent.
type sessionObserver struct {
	hostID string
	stats  *metrics.SessionStats
	emit   api.Emit
}

// removed emits the events of sessions that a store has expired or evicted. Pools may share the store, so its events are the host's.
func (o *sessionObserver) removed(store string) func(why sessions.Removal, n int, ids []string) {
	eventType := map[sessions.Removal]string{sessions.Evicted: api.EventSessionEvicted, sessions.Expired: api.EventSessionExpired}
	return func(why sessions.Removal, n int, ids []string) {
		o.stats.Removed(store, why, n)
		for _, id := range ids {
			o.emit(eventType[why], api.HostSource(o.hostID), time.Now(), api.SessionEvent{Host: o.hostID, Session: id, Store: store})
		}
	}
}

// observedStore is the store of a pool, with its use counted. pool is "" for a caller that names none.
type observedStore struct {
	sessions.Store
	kind, pool string
	to         *sessionObserver
}

func (s observedStore) used(operation string, began time.Time, err error) {
	s.to.stats.Used(s.kind, operation, time.Since(began), err)
}

func (s observedStore) Create(ctx context.Context, draft *sessions.Session) (*sessions.Session, error) {
	began := time.Now()
	created, err := s.Store.Create(ctx, draft)
	s.used("create", began, err)
	if err == nil {
		s.to.stats.Created(s.kind)
		source := api.HostSource(s.to.hostID)
		if s.pool != "" {
			source = api.PoolSource(s.pool)
		}
		s.to.emit(api.EventSessionCreated, source, time.Now(), api.SessionEvent{Host: s.to.hostID, Session: created.ID, Store: s.kind})
	}
	return created, err
}

func (s observedStore) Get(ctx context.Context, id string) (*sessions.Session, error) {
	began := time.Now()
	found, err := s.Store.Get(ctx, id)
	s.used("get", began, err)
	return found, err
}

func (s observedStore) Update(ctx context.Context, id string, change func(*sessions.Session) error) (*sessions.Session, error) {
	began := time.Now()
	updated, err := s.Store.Update(ctx, id, change)
	s.used("update", began, err)
	return updated, err
}

func (s observedStore) Touch(ctx context.Context, id string) error {
	began := time.Now()
	err := s.Store.Touch(ctx, id)
	s.used("touch", began, err)
	return err
}

func (s observedStore) Delete(ctx context.Context, id string) error {
	began := time.Now()
	err := s.Store.Delete(ctx, id)
	s.used("delete", began, err)
	return err
}

func (s observedStore) List(ctx context.Context, after string, limit int) ([]*sessions.Session, error) {
	began := time.Now()
	found, err := s.Store.List(ctx, after, limit)
	s.used("list", began, err)
	return found, err
}

// observedBindings are the bindings of this host, with new ones emitted, and the moves of migrations counted and emitted.
type observedBindings struct {
	*affinity.Table
	to *sessionObserver
}

// Follow is that of affinity.Table.
func (b observedBindings) Follow(pool, session, was, worker string) {
	if b.Table.Follow(pool, session, was, worker) {
		b.emitBound(pool, session, was, worker)
	}
}

func (b observedBindings) emitBound(pool, session, was, worker string) {
	b.to.emit(api.EventSessionBound, api.PoolSource(pool), time.Now(), api.SessionEvent{Host: b.to.hostID, Session: session, From: was, Worker: worker})
}

// Bind is that of affinity.Table.
func (b observedBindings) Bind(pool, session, worker string) (was string, bound bool) {
	was, bound = b.Table.Bind(pool, session, worker)
	if bound && was != worker {
		b.emitBound(pool, session, was, worker)
	}
	return was, bound
}

// Move is that of affinity.Table.
func (b observedBindings) Move(pool, session, from, to string) bool {
	before := b.Where(pool, session)
	done := b.Table.Move(pool, session, from, to)
	b.to.stats.Moved(done)
	if done && before != to { // else it is a repetition
		b.to.emit(api.EventSessionMigrated, api.PoolSource(pool), time.Now(), api.SessionEvent{Host: b.to.hostID, Session: session, From: from, Worker: to})
	}
	return done
}

// liveSessions counts the live sessions of the stores that this agent has opened, by kind. It leaves out stores that do not answer.
func (s *stores) liveSessions(ctx context.Context) map[string]int {
	live := map[string]int{}
	s.mu.Lock()
	open := make(map[sessions.Store]string, len(s.open))
	for _, known := range s.open {
		open[known.store] = known.settings.Store
	}
	s.mu.Unlock()
	for store, kind := range open {
		if n, err := store.Count(ctx); err == nil {
			live[kind] += n
		}
	}
	return live
}
