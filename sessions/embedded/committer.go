package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.etcd.io/bbolt"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/ledger"
)

const (
	// gather is how long writes that are acknowledged before they are durable wait for company, and maxLag how old they may get:
	// beyond it, writers wait for the disk.
	gather = 40 * time.Millisecond
	maxLag = 100 * time.Millisecond
	// maxBatchBytes bounds what waits in memory for the disk; who would exceed it waits, too.
	maxBatchBytes = 8 << 20
	// retryEvery is the rhythm in which a batch that could not be written is tried again.
	retryEvery = 200 * time.Millisecond
)

// batch is what is written in one go. The store's lock guards it; the committer alone changes the current one, between attempts.
type batch struct {
	records map[string][]byte // nil: the session is deleted
	uses    map[string]int64
	bytes   int
	began   time.Time     // when the first record came
	done    chan struct{} // closed when it was tried for the first time; err is set before
	told    bool
	err     error
}

func newBatch() *batch {
	return &batch{records: make(map[string][]byte), uses: make(map[string]int64), done: make(chan struct{})}
}

// add puts a record in, and tells whether its writer has to wait for the disk.
func (s *Store) add(id string, record []byte) (b *batch, wait bool) {
	b, now := s.next, time.Now()
	if len(b.records) == 0 {
		b.began = now
	}
	b.records[id] = record
	b.bytes += len(id) + len(record)
	urgent := s.sync == SyncAlways || b.bytes > maxBatchBytes
	s.wake(urgent)
	return b, urgent || s.current != nil && now.Sub(s.current.began) > maxLag
}

// wake tells the committer that there is work: to be done now, or once more has gathered.
func (s *Store) wake(urgent bool) {
	c := s.work
	if urgent {
		c = s.hurry
	}
	select {
	case c <- struct{}{}:
	default: // it has been told
	}
}

// use notes a use of a session, and has it written if the file would otherwise forget too much of the session's life.
func (s *Store) use(e *ledger.Entry[saved], now int64) {
	s.ledger.Touch(e, now, e.TTL)
	if e.LastAccessed-e.Value.accessed >= max(e.TTL/lifeLostMost, 1000) {
		e.Value.accessed = e.LastAccessed
		s.next.uses[e.ID] = e.LastAccessed
		s.wake(false)
	}
}

// commit writes batches until the store closes. It is the only one to write.
func (s *Store) commit() {
	for {
		select {
		case <-s.hurry:
		case <-s.work:
			s.gatherMore()
		case <-s.closing:
			s.flush() // what could not be written before, if there is such
			s.flush()
			return
		}
		s.flush()
	}
}

func (s *Store) gatherMore() {
	timer := time.NewTimer(gather)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.hurry:
	case <-s.closing:
	}
}

// flush writes what there is. What cannot be written is tried until it can; meanwhile its writers know, and no further writes are
// taken.
func (s *Store) flush() {
	for b := s.take(); b != nil; {
		if s.settle(b, guard(func() error { return s.db.Update(b.write) })) {
			return
		}
		retry := time.NewTimer(retryEvery)
		select {
		case <-retry.C:
		case <-s.closing:
			retry.Stop()
			return
		}
	}
}

// take makes what has gathered the batch to be written, unless an earlier one still is. It returns nil if there is nothing.
func (s *Store) take() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil && len(s.next.records)+len(s.next.uses) > 0 {
		s.current, s.next = s.next, newBatch()
	}
	return s.current
}

// settle tells the writers of the current batch how it went, and reports whether it is written. If not, what has gathered
// meanwhile joins it.
func (s *Store) settle(b *batch, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.tell(err)
	if s.broken = err; err == nil {
		s.current = nil
		return true
	}
	maps.Copy(b.records, s.next.records)
	maps.Copy(b.uses, s.next.uses)
	s.next.tell(err)
	s.next = newBatch()
	return false
}

// tell ends the waiting of the batch's writers, once.
func (b *batch) tell(err error) {
	if !b.told {
		b.told, b.err = true, err
		close(b.done)
	}
}

func (b *batch) write(tx *bbolt.Tx) error {
	records, uses := tx.Bucket(bucketRecords), tx.Bucket(bucketUses)
	for id, at := range b.uses {
		if err := uses.Put([]byte(id), binary.BigEndian.AppendUint64(nil, uint64(at))); err != nil {
			return fmt.Errorf("note a use of session %s: %w", id, err)
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

// errBroken is why no writes are taken.
func errBroken(doing string, err error) error {
	return sessions.Unavailable(doing, fmt.Errorf("it cannot write its file, and takes no changes until it can: %w", err))
}
