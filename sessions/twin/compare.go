package twin

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

const (
	// comparePage is how many sessions are read of both stores at one time, and comparePatience how long that may take.
	comparePage     = 16
	comparePatience = 10 * time.Second
	// nearEnd is how close to its end a session means nothing: the two stores look at it at two moments.
	nearEnd = time.Second
)

var errEmpty = api.Errorf(api.CodeStoreUnavailable, "the store that is the truth has no session, and the other one has some: they are left as they are. "+
	"If the truth lost its sessions, go back or cancel, and copy the other way round")

// compare looks at every session of both stores and puts right what differs.
func (p *pair) compare(ctx context.Context) {
	p.mu.Lock()
	p.comparing = &api.SessionComparison{Began: time.Now().UTC().Truncate(time.Millisecond)}
	p.mu.Unlock()
	err := p.compareAll(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.comparing
	p.comparing = nil
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		p.problem, p.equal = err, false
		return
	}
	p.wary = false
	done.Ended = time.Now().UTC().Truncate(time.Millisecond)
	p.problem, p.failing, p.compared, p.equal = nil, nil, done, done.Equal()
	if !p.equal {
		p.rouse() // the next one tells whether they are now
	}
}

func (p *pair) compareAll(ctx context.Context) error {
	var ids, others []string
	err := p.during(ctx, func(ctx context.Context) (err error) {
		if ids, err = p.store.truth.IDs(ctx); err != nil {
			return fmt.Errorf("list the sessions of the store that is the truth: %w", err)
		}
		if others, err = p.follower.IDs(ctx); err != nil {
			return fmt.Errorf("list the sessions of the other store: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p.wary && len(ids) == 0 && len(others) > 0 {
		return errEmpty
	}
	p.note(func(c *api.SessionComparison) { c.Sessions = len(ids) })
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	all := append(ids, slices.DeleteFunc(others, func(id string) bool { return known[id] })...)
	for page := range slices.Chunk(all, comparePage) {
		if err := p.during(ctx, func(ctx context.Context) error { return p.comparePage(ctx, page) }); err != nil {
			return err
		}
	}
	return nil
}

// during runs a part of a comparison, within its time.
func (p *pair) during(ctx context.Context, do func(context.Context) error) error {
	p.store.gate.RLock()
	defer p.store.gate.RUnlock()
	within, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	return do(within)
}

func (p *pair) comparePage(ctx context.Context, ids []string) error {
	is, has, err := p.both(ctx, ids)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, id := range ids {
		if !sessions.Same(is[i], has[i]) {
			group.Go(func() error { return p.compareOne(ctx, id) })
		}
	}
	err = group.Wait()
	p.note(func(c *api.SessionComparison) { c.Compared += len(ids) })
	return err
}

// both reads sessions of both stores.
func (p *pair) both(ctx context.Context, ids []string) (is, has []*sessions.Session, err error) {
	if is, err = p.store.truth.Peek(ctx, ids); err != nil {
		return nil, nil, fmt.Errorf("read the store that is the truth: %w", err)
	}
	if has, err = p.follower.Peek(ctx, ids); err != nil {
		return nil, nil, fmt.Errorf("read the other store: %w", err)
	}
	return is, has, nil
}

// compareOne looks again at a session that seemed to differ, which may have been changed in between, and puts it right. While it has the
// session's stripe nobody else gives it to the follower: who is about to is known as moving.
func (p *pair) compareOne(ctx context.Context, id string) error {
	stripe := &p.stripes[maphash.String(seed, id)%uint64(len(p.stripes))]
	stripe.Lock()
	defer stripe.Unlock()
	is, has, err := p.both(ctx, []string{id})
	if err != nil {
		return err
	}
	if sessions.Same(is[0], has[0]) || p.book.unsettled(id) || endsSoon(is[0]) || endsSoon(has[0]) {
		return nil
	}
	if err := p.hold(ctx, id, is[0]); err != nil {
		return fmt.Errorf("put session %s right in the other store: %w", id, err)
	}
	p.note(func(c *api.SessionComparison) {
		switch {
		case has[0] == nil:
			c.Missing++
		case is[0] == nil:
			c.Extra++
		default:
			c.Different++
		}
	})
	return nil
}

func endsSoon(s *sessions.Session) bool { return s != nil && time.Until(s.ExpiresAt()) < nearEnd }

// note changes the counts of the comparison that goes on.
func (p *pair) note(change func(*api.SessionComparison)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.comparing)
}
