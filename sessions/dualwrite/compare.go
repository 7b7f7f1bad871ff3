package dualwrite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/sessions"
)

const (
	// comparePageSize is how many sessions are read from both stores at a time, and compareTimeout how long that may take.
	comparePageSize = 16
	compareTimeout  = 10 * time.Second
	// expiryMargin excludes sessions about to expire: the two stores are read at slightly different times.
	expiryMargin = time.Second
)

var errEmptyPrimary = api.Errorf(api.CodeStoreUnavailable,
	"the primary store has no sessions and the secondary has some: both were left unchanged; "+
		"if the primary lost its sessions, run --back --force or --cancel, then copy in the other direction")

// compare compares every session of both stores, repairs the differences in the secondary, and saves the outcome.
func (r *replicator) compare(ctx context.Context) {
	r.mu.Lock()
	r.current = &api.SessionComparison{Began: time.Now().UTC().Truncate(time.Millisecond)}
	r.mu.Unlock()
	err := r.compareAll(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	done := r.current
	r.current = nil
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.compareErr, r.equal = err, false
		return
	}
	r.guardSecondary = false
	done.Ended = time.Now().UTC().Truncate(time.Millisecond)
	r.compareErr, r.secondaryErr, r.last, r.equal = nil, nil, done, done.Equal()
	if !r.equal {
		sleep.Wake(r.wake) // the next comparison verifies the repair
	}
}

func (r *replicator) compareAll(ctx context.Context) error {
	ids, others, err := r.list(ctx)
	if err != nil {
		return err
	}
	r.count(func(c *api.SessionComparison) { c.Sessions = len(ids) })
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	all := append(ids, slices.DeleteFunc(others, func(id string) bool { return known[id] })...)
	for page := range slices.Chunk(all, comparePageSize) {
		if err := r.comparePage(ctx, page); err != nil {
			return err
		}
	}
	return nil
}

// list returns the sessions of the primary (ids) and of the secondary (others).
func (r *replicator) list(ctx context.Context) (ids, others []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	if ids, err = r.store.primary.IDs(ctx); err != nil {
		return nil, nil, fmt.Errorf("list the sessions of the primary store: %w", err)
	}
	if others, err = r.store.secondary.IDs(ctx); err != nil {
		return nil, nil, fmt.Errorf("list the sessions of the secondary store: %w", err)
	}
	if !r.guardSecondary || len(others) == 0 {
		return ids, others, nil
	}
	newest := ids[max(0, len(ids)-comparePageSize):] // the index may name sessions that the store has lost
	found, err := r.store.primary.Peek(ctx, newest)
	if err == nil && !slices.ContainsFunc(found, func(s *sessions.Session) bool { return s != nil }) {
		err = errEmptyPrimary
	}
	return ids, others, err
}

func (r *replicator) comparePage(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	want, got, err := r.readBoth(ctx, ids)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(flushConcurrency)
	for i, id := range ids {
		if !sessions.Equal(want[i], got[i]) {
			group.Go(func() error { return r.repair(ctx, id) })
		}
	}
	err = group.Wait()
	r.count(func(c *api.SessionComparison) { c.Compared += len(ids) })
	return err
}

// readBoth reads sessions from the primary (want) and from the secondary (got).
func (r *replicator) readBoth(ctx context.Context, ids []string) (want, got []*sessions.Session, err error) {
	if want, err = r.store.primary.Peek(ctx, ids); err != nil {
		return nil, nil, fmt.Errorf("read the primary store: %w", err)
	}
	if got, err = r.store.secondary.Peek(ctx, ids); err != nil {
		return nil, nil, fmt.Errorf("read the secondary store: %w", err)
	}
	return want, got, nil
}

// repair compares one session again, since it may have changed between the two reads, and writes it to the secondary if
// it still differs. The stripe lock excludes other writes of this session to the secondary; an operation about to write
// it makes it unsettled.
func (r *replicator) repair(ctx context.Context, id string) error {
	defer r.lock(id)()
	wants, gots, err := r.readBoth(ctx, []string{id})
	if err != nil {
		return err
	}
	want, got := wants[0], gots[0]
	if sessions.Equal(want, got) || r.unsettled(id) || expiresSoon(want) || expiresSoon(got) {
		return nil
	}
	if err := r.write(ctx, id, want); err != nil {
		return fmt.Errorf("repair session %s in the secondary store: %w", id, err)
	}
	r.count(func(c *api.SessionComparison) {
		switch {
		case got == nil:
			c.Missing++
		case want == nil:
			c.Extra++
		default:
			c.Different++
		}
	})
	return nil
}

func expiresSoon(s *sessions.Session) bool {
	return s != nil && time.Until(s.ExpiresAt()) < expiryMargin
}

// count updates the counts of the comparison in progress.
func (r *replicator) count(update func(*api.SessionComparison)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	update(r.current)
}
