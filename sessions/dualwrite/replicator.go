package dualwrite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/sessions"
)

const (
	// replicateTimeout limits the write to the secondary within a caller's operation; after it, the session goes to the
	// backlog.
	replicateTimeout = 2 * time.Second
	// flushConcurrency is how many sessions a flush copies at a time.
	flushConcurrency = 16
	// flushEvery is how often the backlog is flushed; it limits how late the secondary gets a use without a change.
	flushEvery = 300 * time.Millisecond
	// compareEvery is the pause between comparisons while the stores are equal. Until they are, comparisons follow without
	// a pause.
	compareEvery = time.Minute
	// maxBacklog limits the backlog. Above it, only a comparison finds what the secondary lacks.
	maxBacklog = 200_000
)

// pending is a session of the backlog. Each operation puts another one in its place.
type pending struct{ changed bool } // or only used

// replicator keeps the secondary store equal to the primary.
type replicator struct {
	store *Store
	// guardSecondary is used by the background goroutine only; see Store.StartCopy.
	guardSecondary bool

	stripes [256]sync.Mutex // serialize the writes of one session to the secondary, by hash; taken before mu

	wake   chan struct{} // to the background goroutine
	cancel context.CancelFunc
	work   sync.WaitGroup // the background goroutine

	// mu guards the fields below.
	mu           sync.Mutex
	busy         map[string]int      // operations in progress, by session
	backlog      map[string]*pending // sessions that the secondary may not have in their current state
	overflowed   bool                // a session was not listed because the backlog was full
	equal        bool                // the last comparison found no difference, and no write failed since
	secondaryErr error               // of the last write to the secondary; while it is set, no operation waits for it
	compareErr   error               // why the last comparison failed
	current      *api.SessionComparison
	last         *api.SessionComparison
}

// start starts the background goroutine.
func (r *replicator) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	sleep.Wake(r.wake)
	r.work.Go(func() { r.run(ctx) })
}

// stop stops the background goroutine and waits for it.
func (r *replicator) stop() {
	r.cancel()
	r.work.Wait()
}

// run flushes the backlog and compares the stores until ctx ends.
func (r *replicator) run(ctx context.Context) {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	var compared time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-r.wake:
		}
		if err := r.flush(ctx); err != nil {
			select { // a failing store is retried once per tick
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
		r.mu.Lock()
		due := !r.equal || r.overflowed || time.Since(compared) >= compareEvery
		r.overflowed = false
		r.mu.Unlock()
		if due && ctx.Err() == nil {
			r.compare(ctx)
			compared = time.Now()
		}
	}
}

var hashSeed = maphash.MakeSeed()

// lock locks the session's stripe and returns the unlock function.
func (r *replicator) lock(id string) (unlock func()) {
	stripe := &r.stripes[maphash.String(hashSeed, id)%uint64(len(r.stripes))]
	stripe.Lock()
	return stripe.Unlock
}

// enqueue adds a session to the backlog; for a changed one it starts a flush.
func (r *replicator) enqueue(id string, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, listed := r.backlog[id]; listed || len(r.backlog) < maxBacklog {
		r.backlog[id] = &pending{changed || listed && before.changed}
	} else {
		r.overflowed = true
	}
	if changed && r.secondaryErr == nil {
		sleep.Wake(r.wake)
	}
}

// begin notes an operation on a session until end is called.
func (r *replicator) begin(id string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy[id]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.busy[id]--; r.busy[id] == 0 {
			delete(r.busy, id)
		}
	}
}

// unsettled reports whether a session has an operation in progress or is in the backlog, so that a difference between
// the stores is expected.
func (r *replicator) unsettled(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backlog[id] != nil || r.busy[id] > 0
}

// fails reports whether the last write to the secondary failed.
func (r *replicator) fails() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.secondaryErr != nil
}

// replicate copies a session that the primary has just changed to the secondary, or enqueues it. The caller holds
// store.mu.
func (r *replicator) replicate(ctx context.Context, id string, changed *sessions.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replicateTimeout)
	defer cancel()
	if r.fails() || r.copySession(ctx, id, changed) != nil {
		r.enqueue(id, true)
	}
}

// copySession makes the secondary's session equal to the primary's. Concurrent changes of one session may arrive here
// in any order: each reads the primary again, so the last one leaves both stores equal. If the primary does not answer,
// the secondary gets at least the acknowledged state, changed, unless that is nil. The roles must not change meanwhile.
func (r *replicator) copySession(ctx context.Context, id string, changed *sessions.Session) error {
	defer r.lock(id)()
	found, err := r.store.primary.Peek(ctx, []string{id})
	if err != nil {
		if changed != nil {
			err = errors.Join(err, r.putIfNewer(ctx, changed))
		}
		return fmt.Errorf("read session %s: %w", id, err)
	}
	return r.write(ctx, id, found[0])
}

// putIfNewer puts a session into the secondary unless that has a newer one.
func (r *replicator) putIfNewer(ctx context.Context, changed *sessions.Session) error {
	found, err := r.store.secondary.Peek(ctx, []string{changed.ID})
	if err == nil && (found[0] == nil || found[0].CreatedAt.Before(changed.CreatedAt) ||
		found[0].Version < changed.Version) {
		_, _, err = r.store.secondary.Put(ctx, changed, sessions.ToCopy)
	}
	return err
}

// write puts a session into the secondary, or deletes it there if session is nil.
func (r *replicator) write(ctx context.Context, id string, session *sessions.Session) error {
	var err error
	if session != nil {
		_, _, err = r.store.secondary.Put(ctx, session, sessions.ToCopy)
	} else if err = r.store.secondary.Delete(ctx, id); errors.Is(err, api.ErrSessionNotFound) {
		err = nil
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // a cancelled write says nothing about the secondary
		r.mu.Lock()
		defer r.mu.Unlock()
		r.secondaryErr = err
		r.equal = r.equal && err == nil
	}
	return err
}

// flush copies the backlog to the secondary. It stops at the first failure, because a store that does not answer would
// delay every session.
func (r *replicator) flush(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(flushConcurrency)
	r.mu.Lock()
	backlog := maps.Clone(r.backlog)
	r.mu.Unlock()
	for id, session := range backlog {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(groupCtx, replicateTimeout)
			defer cancel()
			err := r.copySession(ctx, id, nil)
			if err == nil {
				r.flushed(id, session)
			}
			return err
		})
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// flushed removes a session from the backlog unless an operation has added it again.
func (r *replicator) flushed(id string, session *pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backlog[id] == session {
		delete(r.backlog, id)
	}
}

// status reports the state of the copy.
func (r *replicator) status() api.SessionCopy {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := api.SessionCopy{
		Phase: api.CopyCopying, InSync: r.equal, Pending: len(r.backlog), Compared: r.last,
	}
	if r.current != nil {
		status.Comparing = new(*r.current)
	}
	if status.InSync {
		status.Phase = api.CopyInSync
	}
	if err := cmp.Or(r.compareErr, r.secondaryErr); err != nil {
		status.Problem = err.Error()
	}
	return status
}
