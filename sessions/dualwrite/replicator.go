package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
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
)

// replicator keeps the secondary store equal to the primary.
type replicator struct {
	stores  *stores
	cutOver bool // guarded by stores.mu
	// guardSecondary is used by the background goroutine only; see Store.StartCopy.
	guardSecondary bool

	backlog *backlog
	stripes [256]sync.Mutex // serialize the writes of one session to the secondary, by hash of its id

	wake   chan struct{} // to the background goroutine
	cancel context.CancelFunc
	work   sync.WaitGroup // the background goroutine

	// mu guards the fields below.
	mu           sync.Mutex
	equal        bool  // the last comparison found no difference, and no write failed since
	secondaryErr error // why the last write to the secondary failed; until it recovers, operations do not wait for it
	compareErr   error // why the last comparison failed
	current      *api.SessionComparison
	last         *api.SessionComparison
}

var hashSeed = maphash.MakeSeed()

// lock locks the session's stripe and returns the unlock function.
func (r *replicator) lock(id string) (unlock func()) {
	stripe := &r.stripes[maphash.String(hashSeed, id)%uint64(len(r.stripes))]
	stripe.Lock()
	return stripe.Unlock
}

// enqueue adds a changed session to the backlog and starts a flush.
func (r *replicator) enqueue(id string) {
	r.backlog.add(id, true)
	sleep.Wake(r.wake)
}

// replicate copies a session that the primary has just changed to the secondary, or enqueues it. The caller holds
// stores.mu.
func (r *replicator) replicate(ctx context.Context, id string, changed *sessions.Session) {
	if r.secondaryFails() {
		r.backlog.add(id, true)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replicateTimeout)
	defer cancel()
	if err := r.copySession(ctx, id, changed); err != nil {
		r.enqueue(id)
	}
}

// copySession makes the secondary's session equal to the primary's. Concurrent changes of one session may arrive here
// in any order: each reads the primary again, so the last one leaves both stores equal. If the primary does not answer,
// the secondary gets at least the acknowledged state, changed, unless that is nil. The caller holds stores.mu.
func (r *replicator) copySession(ctx context.Context, id string, changed *sessions.Session) error {
	defer r.lock(id)()
	found, err := r.stores.primary.Peek(ctx, []string{id})
	if err != nil {
		if changed != nil {
			err = errors.Join(err, r.putIfNewer(ctx, changed))
		}
		return fmt.Errorf("read session %s: %w", id, err)
	}
	return r.write(ctx, id, found[0])
}

// write puts a session into the secondary, or deletes it there if session is nil.
func (r *replicator) write(ctx context.Context, id string, session *sessions.Session) error {
	var err error
	if session != nil {
		err = r.stores.secondary.Put(ctx, session)
	} else if err = r.stores.secondary.Delete(ctx, id); errors.Is(err, api.ErrSessionNotFound) {
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

// putIfNewer puts a session into the secondary unless that has a newer one.
func (r *replicator) putIfNewer(ctx context.Context, changed *sessions.Session) error {
	found, err := r.stores.secondary.Peek(ctx, []string{changed.ID})
	if err == nil && (found[0] == nil || found[0].CreatedAt.Before(changed.CreatedAt) ||
		found[0].Version < changed.Version) {
		err = r.stores.secondary.Put(ctx, changed)
	}
	return err
}

// secondaryFails reports whether the last write to the secondary failed.
func (r *replicator) secondaryFails() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.secondaryErr != nil
}

// flush copies the backlog to the secondary while operations continue.
func (r *replicator) flush(ctx context.Context) error {
	return r.flushEach(ctx, func(ctx context.Context, id string) error {
		r.stores.mu.RLock()
		defer r.stores.mu.RUnlock()
		return r.flushLocked(ctx, id)
	})
}

// flushEach calls flush for each session of the backlog. It stops at the first failure, because a store that does not
// answer would delay every session.
func (r *replicator) flushEach(ctx context.Context, flush func(context.Context, string) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(flushConcurrency)
	for _, id := range r.backlog.ids() {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error { return flush(groupCtx, id) })
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// flushLocked copies one session of the backlog. The caller holds stores.mu.
func (r *replicator) flushLocked(ctx context.Context, id string) error {
	r.backlog.begin(id)
	defer r.backlog.end(id)
	changed, found := r.backlog.take(id)
	if !found {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, replicateTimeout)
	defer cancel()
	err := r.copySession(ctx, id, nil)
	if err != nil {
		r.backlog.add(id, changed)
	}
	return err
}
