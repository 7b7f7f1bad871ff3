package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/spec"
)

const (
	// batchDelay is how long spec.SyncInterval collects writes into one batch. Above maxLag, writers wait for the disk.
	batchDelay = 40 * time.Millisecond
	maxLag     = 100 * time.Millisecond
	// maxBatchBytes limits the records waiting in memory; writers above it wait for the disk.
	maxBatchBytes = 8 << 20
	// retryDelay is the pause before a failed batch is written again.
	retryDelay = 200 * time.Millisecond
	// maxTTLLoss: a use is written only when the file lacks at least this part of the TTL (and one second), so a crash
	// shortens the session's remaining time by no more than that.
	maxTTLLoss = 60
)

// batch is written in one transaction. Store.mu guards it. Only the committer changes the current batch, between two
// attempts, so it writes it without the lock.
type batch struct {
	records map[string][]byte // nil: delete the session
	uses    map[string]int64
	bytes   int
	began   time.Time     // when its first entry was added
	tried   chan struct{} // closed after the first attempt; err is set before
	err     error
}

func newBatch() *batch {
	return &batch{records: make(map[string][]byte), uses: make(map[string]int64), tried: make(chan struct{})}
}

// begin is called for each entry.
func (b *batch) begin() {
	if b.began.IsZero() {
		b.began = time.Now()
	}
}

// finish wakes the writers that wait for the batch with the outcome of its first attempt. Later calls do nothing.
func (b *batch) finish(err error) {
	if !sleep.Ended(b.tried) {
		b.err = err
		close(b.tried)
	}
}

// enqueueLocked adds a record to the next batch, and returns that batch if the record's writer must wait for the disk,
// else nil.
func (s *Store) enqueueLocked(id string, record []byte) *batch {
	b := s.next
	if s.db == nil {
		if b.records[id] = record; record == nil {
			delete(b.records, id)
			delete(b.uses, id)
		}
		return nil
	}
	b.begin()
	b.records[id] = record
	b.bytes += len(id) + len(record)
	urgent := s.options.Settings().Sync != spec.SyncInterval || b.bytes > maxBatchBytes
	s.wakeCommitter(urgent)
	if urgent || s.current != nil && time.Since(s.current.began) > maxLag {
		return b
	}
	return nil
}

// wakeCommitter makes the committer write the next batch, at once or after batchDelay.
func (s *Store) wakeCommitter(urgent bool) {
	if urgent {
		sleep.Wake(s.commitNow)
	} else {
		sleep.Wake(s.commitSoon)
	}
}

// touchLocked extends a session's TTL and writes that use if the file lacks too much of the TTL (maxTTLLoss).
func (s *Store) touchLocked(e *entry, now int64) {
	s.sessions.Touch(e, now, e.TTL)
	if e.LastAccessed-e.Value.savedAccess >= max(e.TTL/maxTTLLoss, 1000) {
		e.Value.savedAccess = e.LastAccessed
		s.next.begin()
		s.next.uses[e.ID] = e.LastAccessed
		s.wakeCommitter(false)
	}
}

// commit is the committer: the only writer to the file, until the store closes.
func (s *Store) commit() {
	for {
		select {
		case <-s.commitNow:
		case <-s.commitSoon:
			select {
			case <-time.After(batchDelay):
			case <-s.commitNow:
			case <-s.closing:
			}
		case <-s.closing:
			s.flush() // a batch that failed before, if any
			s.flush()
			return
		}
		s.flush()
	}
}

// flush writes the next batch and retries until it succeeds or the store closes. In between, the store rejects writes.
func (s *Store) flush() {
	for b := s.takeBatch(); b != nil; {
		if s.finishBatch(b, recoverDamage(func() error { return s.db.Update(b.write) })) {
			return
		}
		if !sleep.For(s.closing, retryDelay) {
			return
		}
	}
}

// takeBatch makes the next batch the current one, unless an earlier one still is. It returns nil if there is nothing to
// write.
func (s *Store) takeBatch() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil && len(s.next.records)+len(s.next.uses) > 0 {
		s.current, s.next = s.next, newBatch()
	}
	return s.current
}

// finishBatch reports the outcome of the current batch to its writers and returns whether it was written. If not, it
// merges the next batch into it.
func (s *Store) finishBatch(b *batch, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.finish(err)
	if s.writeErr = err; err == nil {
		s.current = nil
		return true
	}
	maps.Copy(b.records, s.next.records)
	maps.Copy(b.uses, s.next.uses)
	s.next.finish(err)
	s.next = newBatch()
	return false
}

func (b *batch) write(tx *bbolt.Tx) error {
	records, uses := tx.Bucket(bucketRecords), tx.Bucket(bucketUses)
	for id, at := range b.uses {
		if err := uses.Put([]byte(id), binary.BigEndian.AppendUint64(nil, uint64(at))); err != nil {
			return fmt.Errorf("write the last use of session %s: %w", id, err)
		}
	}
	for id, record := range b.records {
		var err error
		if record != nil {
			err = records.Put([]byte(id), record)
		} else {
			err = errors.Join(records.Delete([]byte(id)), uses.Delete([]byte(id)))
		}
		if err != nil {
			return fmt.Errorf("write session %s: %w", id, err)
		}
	}
	return nil
}
