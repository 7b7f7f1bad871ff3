// Package embedded is a durable session store in one file, for one host. It uses bbolt, whose file stays consistent
// after a crash of the process or of the machine.
//
// A committer goroutine writes pending records in one transaction, so that concurrent writers share an fsync. Records
// that are not yet written are served from memory. A store without a file, for tests, never writes them.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/expirylru"
	"github.com/tempool/tempool/spec"
)

// Options of a store.
type Options struct {
	sessions.Config
	// Path is the file. Open creates it and its directory. Only one process can open it at a time. With spec.SyncAlways
	// in Settings, a write is acknowledged when it is on disk, with spec.SyncInterval at once. A crash then loses at most
	// the last 100 ms: if the disk is slower, writers wait.
	Path string
}

// state is what the store holds in memory about a session, in addition to its expiry.
type state struct {
	version, createdAt int64
	// savedAccess is the last use that is in the file or in a batch.
	savedAccess int64
}

type entry = expirylru.Entry[state]

func newEntry(id string, h sessions.Header) *entry {
	return &entry{ID: id, LastAccessed: h.LastAccessed, TTL: h.TTL, Value: state{h.Version, h.CreatedAt, h.LastAccessed}}
}

// Store is a sessions.Store in a file. A write that fails with CodeStoreUnavailable or with its context's error may
// have been stored.
type Store struct {
	options Options
	db      *bbolt.DB // nil for InMemory

	commitNow, commitSoon, closing chan struct{} // to the committer
	committer                      sync.WaitGroup

	// mu guards the fields below.
	mu       sync.Mutex
	sessions *expirylru.LRU[state]
	// next collects records, without a file those of all sessions; current is being written, nil for none.
	next, current *batch
	writeErr      error // why the last batch could not be written
	closed        error // why there are no operations any more
	closeErr      error
}

var _ sessions.Store = (*Store)(nil)

// Open opens the file. It fails with CodeStoreUnavailable if another process has it open or if it is damaged.
func Open(options Options) (*Store, error) {
	options.Config = options.Config.WithDefaults()
	db, stored, err := openFile(options.Path)
	if err != nil {
		return nil, err
	}
	s := newStore(options, db, stored)
	s.committer.Go(s.commit)
	return s, nil
}

// InMemory makes an empty store without a file: closing it deletes every session.
func InMemory(config sessions.Config) *Store {
	return newStore(Options{Config: config.WithDefaults()}, nil, expirylru.New[state]())
}

// Broken makes the stand-in for a store that could not be opened: its operations fail because of err.
func Broken(err error) *Store {
	s := InMemory(sessions.Config{})
	s.closed = err
	return s
}

func newStore(options Options, db *bbolt.DB, stored *expirylru.LRU[state]) *Store {
	return &Store{
		options: options, db: db, sessions: stored,
		next:      newBatch(),
		commitNow: make(chan struct{}, 1), commitSoon: make(chan struct{}, 1), closing: make(chan struct{}),
	}
}

// anySession is passed to lock by operations without a session id. It is not a valid id.
const anySession = "/"

// lock locks the store for one operation and returns the current time; the caller unlocks mu unless lock fails.
func (s *Store) lock(ctx context.Context, operation, id string) (now int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if id != anySession {
		if err := sessions.CheckID(id); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	if s.closed != nil {
		defer s.mu.Unlock()
		return 0, sessions.Unavailable(operation, s.closed)
	}
	return s.options.Now().UnixMilli(), nil
}

// write locks the store, calls change with the current time, and waits until the batch that change returns is written,
// unless that is nil. It fails while the file cannot be written.
func (s *Store) write(ctx context.Context, operation, id string, change func(now int64) (*batch, error)) error {
	now, err := s.lock(ctx, operation, id)
	if err != nil {
		return err
	}
	var b *batch
	if s.writeErr != nil {
		err = cannotWrite(operation, s.writeErr)
	} else {
		b, err = change(now)
	}
	s.mu.Unlock()
	if b == nil || err != nil {
		return err
	}
	select {
	case <-b.tried:
		if b.err != nil {
			return cannotWrite(operation, b.err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func cannotWrite(operation string, err error) error {
	return sessions.Unavailable(operation, fmt.Errorf("cannot write its file and rejects changes until it can: %w", err))
}

// Put stores a session.
func (s *Store) Put(ctx context.Context, given *sessions.Session, to sessions.Purpose) (stored *sessions.Session,
	did sessions.Restored, err error) {
	exact, body, err := s.options.PreparePut(given, to, s.options.Now())
	if err != nil {
		return nil, "", err
	}
	err = s.write(ctx, to.Operation(given.ID), given.ID, func(now int64) (*batch, error) {
		if exact == nil {
			did = sessions.RestoredExpired
			return nil, nil
		}
		s.sweepLocked(now)
		did = sessions.RestoredNew
		settings := s.options.Settings()
		if e := s.sessions.Get(exact.ID); e != nil {
			switch did = sessions.RestoredOlder; to {
			case sessions.ToCreate:
				return nil, sessions.Exists(exact.ID)
			case sessions.ToRestore:
				if !exact.Header().MayReplace(sessions.Header{Version: e.Value.version, CreatedAt: e.Value.createdAt}) {
					did = sessions.RestoredKept
					return nil, nil
				}
				if used := time.UnixMilli(e.LastAccessed).UTC(); used.After(exact.LastAccessed) {
					exact.LastAccessed = used
				}
			}
			s.sessions.Remove(e)
		} else if to != sessions.ToCopy && s.sessions.Len() >= settings.Max {
			if to == sessions.ToRestore || settings.OnFull != spec.OnFullEvict {
				return nil, sessions.Full(settings.Max)
			}
			oldest := s.sessions.Oldest()
			s.removeLocked(oldest)
			s.options.Removed(sessions.Evicted, 1, []string{oldest.ID})
		}
		e := newEntry(exact.ID, exact.Header())
		s.sessions.Add(e)
		if to == sessions.ToCreate {
			s.sessions.Touch(e, e.LastAccessed, e.TTL)
		} else {
			s.next.uses[e.ID] = e.LastAccessed // overwrites one in the file, which may be later
		}
		stored = exact.Clone()
		return s.enqueueLocked(e.ID, encodeRecord(exact, body)), nil
	})
	if err != nil {
		return nil, "", err
	}
	return stored, did, nil
}

// removeLocked removes a session from memory and enqueues its removal from the file, as enqueueLocked does.
func (s *Store) removeLocked(e *entry) *batch {
	s.sessions.Remove(e)
	return s.enqueueLocked(e.ID, nil)
}

// sweepLocked removes expired sessions and returns their number.
func (s *Store) sweepLocked(now int64) int {
	expired := s.sessions.Sweep(now)
	for _, e := range expired {
		s.enqueueLocked(e.ID, nil)
	}
	if len(expired) > 0 {
		s.options.Removed(sessions.Expired, len(expired), expirylru.IDs(expired))
	}
	return len(expired)
}

// Count returns the number of live sessions.
func (s *Store) Count(ctx context.Context) (n int, err error) {
	_, err = s.swept(ctx, "count sessions", func() { n = s.sessions.Len() })
	return n, err
}

// DeleteExpired removes expired sessions from memory at once and from the file with the next batch.
func (s *Store) DeleteExpired(ctx context.Context) (int, error) {
	return s.swept(ctx, "sweep sessions", func() {})
}

// swept looks at the sessions after a sweep, and returns how many that removed.
func (s *Store) swept(ctx context.Context, operation string, look func()) (removed int, err error) {
	now, err := s.lock(ctx, operation, anySession)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	removed = s.sweepLocked(now)
	look()
	return removed, nil
}

// IDs lists the live sessions, least recently used first.
func (s *Store) IDs(ctx context.Context) (ids []string, err error) {
	_, err = s.swept(ctx, "list sessions", func() { ids = s.sessions.IDs() })
	return ids, err
}

// Peek returns sessions without extending their TTL.
func (s *Store) Peek(ctx context.Context, ids []string) ([]*sessions.Session, error) {
	found := make([]*sessions.Session, len(ids))
	for i, id := range ids {
		_, session, err := s.get(ctx, "read session "+id, id, false)
		if err != nil && !errors.Is(err, api.ErrSessionNotFound) {
			return nil, err
		}
		found[i] = session
	}
	return found, nil
}

// Get returns a session and extends its TTL.
func (s *Store) Get(ctx context.Context, id string) (*sessions.Session, error) {
	_, found, err := s.get(ctx, "get session "+id, id, true)
	return found, err
}

func (s *Store) get(ctx context.Context, operation, id string, use bool) (*entry, *sessions.Session, error) {
	for {
		now, err := s.lock(ctx, operation, id)
		if err != nil {
			return nil, nil, err
		}
		e := s.sessions.Live(id, now)
		if e == nil {
			s.mu.Unlock()
			return nil, nil, sessions.NotFound(id)
		}
		if use {
			s.touchLocked(e, now)
		}
		accessed, ttl := e.LastAccessed, e.TTL
		record := s.unwrittenLocked(id)
		s.mu.Unlock()
		found, err := s.read(operation, id, record)
		if err != nil {
			return nil, nil, err
		}
		if found == nil {
			continue // it was deleted between the unlock and the read
		}
		// The record may be newer than accessed and ttl, and it may lack the last use.
		if found.TTL.D().Milliseconds() == ttl && found.LastAccessed.UnixMilli() < accessed {
			found.LastAccessed = time.UnixMilli(accessed).UTC()
		}
		return e, found, nil
	}
}

// unwrittenLocked returns the session's record if it is not in a file yet, else nil.
func (s *Store) unwrittenLocked(id string) []byte {
	if record, found := s.next.records[id]; found || s.current == nil {
		return record
	}
	return s.current.records[id]
}

// read decodes a session's record, which it reads from the file if record is nil. It returns nil if the file has none.
func (s *Store) read(operation, id string, record []byte) (found *sessions.Session, err error) {
	if record != nil {
		return decodeSession(id, record)
	}
	err = recoverDamage(func() error {
		return s.db.View(func(tx *bbolt.Tx) (err error) {
			if record := tx.Bucket(bucketRecords).Get([]byte(id)); record != nil {
				found, err = decodeSession(id, record)
			}
			return err
		})
	})
	if err != nil {
		return nil, sessions.Unavailable(operation, err)
	}
	return found, nil
}

// Update changes a session. It calls change without holding the lock.
func (s *Store) Update(ctx context.Context, id string,
	change func(*sessions.Session) error) (*sessions.Session, error) {
	operation := "update session " + id
	for {
		e, current, err := s.get(ctx, operation, id, true)
		if err != nil {
			return nil, err
		}
		next, body, err := s.options.PrepareUpdate(current, change, s.options.Now())
		if err != nil {
			return nil, err
		}
		if swapped, err := s.swap(ctx, e, current.Version, next, body); err != nil {
			return nil, err
		} else if swapped {
			return next.Clone(), nil
		}
	}
}

// swap stores next and returns true if the session still has this entry and version.
func (s *Store) swap(ctx context.Context, e *entry, version int64, next *sessions.Session,
	body []byte) (swapped bool, err error) {
	err = s.write(ctx, "update session "+next.ID, next.ID, func(now int64) (*batch, error) {
		if s.sessions.Live(next.ID, now) != e || e.Value.version != version {
			return nil, nil
		}
		swapped = true
		s.sessions.Touch(e, next.LastAccessed.UnixMilli(), next.TTL.D().Milliseconds())
		next.LastAccessed = time.UnixMilli(e.LastAccessed).UTC()
		e.Value.version, e.Value.savedAccess = next.Version, e.LastAccessed
		return s.enqueueLocked(next.ID, encodeRecord(next, body)), nil
	})
	return swapped, err
}

// Delete removes a session.
func (s *Store) Delete(ctx context.Context, id string) error {
	return s.write(ctx, "delete session "+id, id, func(now int64) (*batch, error) {
		e := s.sessions.Live(id, now)
		if e == nil {
			return nil, sessions.NotFound(id)
		}
		return s.removeLocked(e), nil
	})
}

// Close writes all pending records and closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	isFirst := s.closed == nil
	s.closed = cmp.Or(s.closed, sessions.ErrClosed)
	if !isFirst || s.db == nil {
		defer s.mu.Unlock()
		return s.closeErr
	}
	for e := range s.sessions.All {
		if e.LastAccessed > e.Value.savedAccess {
			s.next.uses[e.ID] = e.LastAccessed
		}
	}
	s.mu.Unlock()
	close(s.closing)
	s.committer.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		s.closeErr = cannotWrite("close the session store", s.writeErr)
	}
	if err := recoverDamage(s.db.Close); err != nil && s.closeErr == nil {
		s.closeErr = sessions.Unavailable("close the session store", err)
	}
	return s.closeErr
}
