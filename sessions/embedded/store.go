// Package embedded is a durable session store in one file, for one host. The engine is bbolt: the file is whole after every crash,
// whether of the process or of the machine.
//
// A committer writes what has gathered as one transaction, so that many writers share one wait for the disk. What is not written
// yet is served from memory.
package embedded

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/ledger"
)

// Sync says when a write is acknowledged.
type Sync string

// Words of Sync.
const (
	// SyncAlways acknowledges what is on disk.
	SyncAlways Sync = "always"
	// SyncInterval acknowledges at once; a crash loses at most the last 100 ms, as long as the disk takes writes in that time, and
	// writers wait for it when it does not.
	SyncInterval Sync = "interval"
)

// lifeLostMost: reading and touching are written so rarely that a crash takes at most this part of a session's life (and one
// second) off its end.
const lifeLostMost = 60

// Options of a store.
type Options struct {
	sessions.Config
	// Path is the file, made with its folder where it is missing. One process has it at a time.
	Path string
	// Sync is SyncAlways by default.
	Sync Sync
}

// saved is what an entry knows of the file.
type saved struct{ accessed int64 }

// Store is a sessions.Store in a file. A write that ends with CodeStoreUnavailable or with its context may have happened.
type Store struct {
	options Options // but for Max, OnFull and Sync
	db      *bbolt.DB

	hurry, work, closing chan struct{} // to the committer
	committer            sync.WaitGroup

	// mu guards what follows.
	mu     sync.Mutex
	ledger *ledger.Ledger[saved]
	// next gathers; current is being written, if any.
	next, current *batch
	broken        error // why the file cannot be written
	max           int
	onFull        sessions.OnFull
	sync          Sync
	closed        bool
	closeErr      error
}

var _ sessions.Store = (*Store)(nil)

// Open opens the file. It fails with CodeStoreUnavailable if another process has it or if it is damaged, and says so.
func Open(options Options) (*Store, error) {
	options.Config = options.Config.WithDefaults()
	if options.Sync == "" {
		options.Sync = SyncAlways
	}
	db, known, err := openFile(options.Path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		options: options, max: options.Max, onFull: options.OnFull, sync: options.Sync, db: db, ledger: known, next: newBatch(),
		hurry: make(chan struct{}, 1), work: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	s.committer.Go(s.commit)
	return s, nil
}

// enter locks the store for one operation at the moment it returns.
func (s *Store) enter(ctx context.Context, doing, id string) (now int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if id != anySession {
		if err := sessions.CheckID(id); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0, sessions.Unavailable(doing, sessions.ErrClosed)
	}
	return s.options.Now().UnixMilli(), nil
}

// anySession stands for the id in operations on no session in particular; it is none.
const anySession = "/"

// enterToWrite is enter for operations that change something.
func (s *Store) enterToWrite(ctx context.Context, doing, id string) (now int64, err error) {
	now, err = s.enter(ctx, doing, id)
	if err == nil && s.broken != nil {
		err = errBroken(doing, s.broken)
		s.mu.Unlock()
	}
	return now, err
}

// finish unlocks the store and waits for the disk where the writer has to.
func (s *Store) finish(ctx context.Context, doing string, b *batch, wait bool) error {
	s.mu.Unlock()
	if !wait {
		return nil
	}
	select {
	case <-b.done:
		if b.err != nil {
			return errBroken(doing, b.err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Create stores a new session.
func (s *Store) Create(ctx context.Context, draft *sessions.Session) (*sessions.Session, error) {
	doing := "create session " + draft.ID
	made, body, err := s.options.New(draft, s.options.Now())
	if err != nil {
		return nil, err
	}
	now, err := s.enterToWrite(ctx, doing, draft.ID)
	if err != nil {
		return nil, err
	}
	s.sweep(now)
	if s.ledger.Get(made.ID) != nil {
		s.mu.Unlock()
		return nil, sessions.Exists(made.ID)
	}
	if s.ledger.Len() >= s.max {
		if max := s.max; s.onFull != sessions.Evict {
			s.mu.Unlock()
			return nil, sessions.Full(max)
		}
		s.remove(s.ledger.Oldest())
	}
	accessed := made.LastAccessed.UnixMilli()
	s.ledger.Add(&ledger.Entry[saved]{
		ID: made.ID, Version: made.Version, Created: made.CreatedAt.UnixMilli(), LastAccessed: accessed,
		TTL: made.TTL.D().Milliseconds(), Value: saved{accessed: accessed},
	})
	b, wait := s.add(made.ID, appendRecord(made, body))
	if err := s.finish(ctx, doing, b, wait); err != nil {
		return nil, err
	}
	return made.Clone(), nil
}

// remove takes a session out of the ledger and, by and by, out of the file.
func (s *Store) remove(e *ledger.Entry[saved]) (b *batch, wait bool) {
	s.ledger.Remove(e)
	return s.add(e.ID, nil)
}

func (s *Store) sweep(now int64) (found int) {
	s.ledger.Sweep(now, func(e *ledger.Entry[saved]) {
		found++
		s.add(e.ID, nil)
	})
	return found
}

// Get returns a session and extends its life.
func (s *Store) Get(ctx context.Context, id string) (*sessions.Session, error) {
	_, found, err := s.get(ctx, "get session "+id, id)
	return found, err
}

func (s *Store) get(ctx context.Context, doing, id string) (*ledger.Entry[saved], *sessions.Session, error) {
	for {
		now, err := s.enter(ctx, doing, id)
		if err != nil {
			return nil, nil, err
		}
		e := s.ledger.Live(id, now)
		if e == nil {
			s.mu.Unlock()
			return nil, nil, sessions.NotFound(id)
		}
		s.use(e, now)
		accessed, ttl := e.LastAccessed, e.TTL
		record := s.unwritten(id)
		s.mu.Unlock()
		found, err := s.read(doing, id, record)
		if err != nil {
			return nil, nil, err
		}
		if found != nil {
			// The record may be newer than e, and older than the last use.
			if found.TTL.D().Milliseconds() == ttl && found.LastAccessed.UnixMilli() < accessed {
				found.LastAccessed = time.UnixMilli(accessed).UTC()
			}
			return e, found, nil
		} // it was deleted in between
	}
}

// unwritten is the record of a session that has not reached the file yet, or nil.
func (s *Store) unwritten(id string) []byte {
	if record, found := s.next.records[id]; found || s.current == nil {
		return record
	}
	return s.current.records[id]
}

// read makes a session of its record, from the file if it has not been given. It returns nil if the file has none.
func (s *Store) read(doing, id string, record []byte) (found *sessions.Session, err error) {
	if record != nil {
		return session(id, record)
	}
	err = guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			if record = tx.Bucket(bucketRecords).Get([]byte(id)); record == nil {
				return nil
			}
			var err error
			found, err = session(id, record)
			return err
		})
	})
	if err != nil {
		return nil, sessions.Unavailable(doing, err)
	}
	return found, nil
}

// Update changes a session; change runs without the store's lock.
func (s *Store) Update(ctx context.Context, id string, change func(*sessions.Session) error) (*sessions.Session, error) {
	doing := "update session " + id
	for {
		e, current, err := s.get(ctx, doing, id)
		if err != nil {
			return nil, err
		}
		next, body, err := s.options.Changed(current, change, s.options.Now())
		if err != nil {
			return nil, err
		}
		if stored, err := s.swap(ctx, doing, e, current.Version, next, body); err != nil {
			return nil, err
		} else if stored {
			return next.Clone(), nil
		}
	}
}

// swap stores next if the session is still e, in that version.
func (s *Store) swap(ctx context.Context, doing string, e *ledger.Entry[saved], version int64, next *sessions.Session, body []byte) (bool, error) {
	now, err := s.enterToWrite(ctx, doing, next.ID)
	if err != nil {
		return false, err
	}
	if s.ledger.Live(next.ID, now) != e || e.Version != version {
		s.mu.Unlock()
		return false, nil
	}
	e.Version = next.Version
	s.ledger.Touch(e, next.LastAccessed.UnixMilli(), next.TTL.D().Milliseconds())
	next.LastAccessed = time.UnixMilli(e.LastAccessed).UTC()
	e.Value.accessed = e.LastAccessed
	b, wait := s.add(next.ID, appendRecord(next, body))
	return true, s.finish(ctx, doing, b, wait)
}

// Touch extends a session's life.
func (s *Store) Touch(ctx context.Context, id string) error {
	now, err := s.enter(ctx, "touch session "+id, id)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	e := s.ledger.Live(id, now)
	if e == nil {
		return sessions.NotFound(id)
	}
	s.use(e, now)
	return nil
}

// Delete removes a session.
func (s *Store) Delete(ctx context.Context, id string) error {
	doing := "delete session " + id
	now, err := s.enterToWrite(ctx, doing, id)
	if err != nil {
		return err
	}
	e := s.ledger.Live(id, now)
	if e == nil {
		s.mu.Unlock()
		return sessions.NotFound(id)
	}
	b, wait := s.remove(e)
	return s.finish(ctx, doing, b, wait)
}
