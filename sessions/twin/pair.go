package twin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// atOnce is how many sessions are given to the follower at one time.
const atOnce = 16

// pair is a store and its follower.
type pair struct {
	store *Store
	// follower and cutOver are guarded by store.gate.
	follower sessions.Mirror
	cutOver  bool
	wary     bool // of the keeper alone

	book    *book
	stripes [256]sync.Mutex // one session at a time is given to the follower by one only

	wake chan struct{} // to the keeper
	end  context.CancelFunc
	work sync.WaitGroup // the keeper

	// mu guards what follows.
	mu        sync.Mutex
	equal     bool  // the last comparison found nothing, and nothing failed since
	failing   error // why the follower takes nothing; callers do not wait for it then
	problem   error // why there is no comparison
	comparing *api.SessionComparison
	compared  *api.SessionComparison
}

var seed = maphash.MakeSeed()

// owe notes a changed session, which the keeper gives to the follower.
func (p *pair) owe(id string) {
	p.book.owe(id, true)
	p.rouse()
}

func (p *pair) rouse() {
	select {
	case p.wake <- struct{}{}:
	default: // it has been told
	}
}

// follow gives a session that the truth has just changed to the follower, or owes it. The gate is held for reading.
func (p *pair) follow(ctx context.Context, id string, changed *sessions.Session) {
	if p.fails() {
		p.book.owe(id, true)
		return
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), followTimeout)
	defer cancel()
	if err := p.give(within, id, changed); err != nil {
		p.owe(id)
	}
}

// give has the follower hold a session as the truth does. Whatever the order in which those who change one session come here, the last one
// leaves both alike, since each looks at the truth anew. Should the truth not answer any more, the follower gets at least what it
// acknowledged: changed, unless that is nil. The gate is held.
func (p *pair) give(ctx context.Context, id string, changed *sessions.Session) error {
	stripe := &p.stripes[maphash.String(seed, id)%uint64(len(p.stripes))]
	stripe.Lock()
	defer stripe.Unlock()
	found, err := p.store.truth.Peek(ctx, []string{id})
	if err != nil {
		if changed != nil {
			err = errors.Join(err, p.rescue(ctx, changed))
		}
		return fmt.Errorf("read session %s: %w", id, err)
	}
	return p.hold(ctx, id, found[0])
}

// hold has the follower hold a session, or none.
func (p *pair) hold(ctx context.Context, id string, session *sessions.Session) error {
	var err error
	if session != nil {
		err = p.follower.Put(ctx, session)
	} else if err = p.follower.Delete(ctx, id); errors.Is(err, api.ErrSessionNotFound) {
		err = nil
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // which says nothing of the follower
		p.answered(err)
	}
	return err
}

// rescue gives the follower a session that is newer than what it has.
func (p *pair) rescue(ctx context.Context, changed *sessions.Session) error {
	held, err := p.follower.Peek(ctx, []string{changed.ID})
	if err == nil && (held[0] == nil || held[0].CreatedAt.Before(changed.CreatedAt) || held[0].Version < changed.Version) {
		err = p.follower.Put(ctx, changed)
	}
	return err
}

// fails reports whether the follower did not take what it was given last.
func (p *pair) fails() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failing != nil
}

// answered notes how the follower took something.
func (p *pair) answered(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing = err; err != nil {
		p.equal = false
	}
}

// settle gives the follower what is owed to it, while others go on.
func (p *pair) settle(ctx context.Context) error {
	return p.repayAll(ctx, func(ctx context.Context, id string) error {
		p.store.gate.RLock()
		defer p.store.gate.RUnlock()
		return p.repay(ctx, id)
	})
}

// settleAll is settle while the gate is held for writing.
func (p *pair) settleAll(ctx context.Context) error { return p.repayAll(ctx, p.repay) }

// repayAll repays some at a time. The first failure ends it, since a store that does not answer would make each of them wait.
func (p *pair) repayAll(ctx context.Context, repay func(context.Context, string) error) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, id := range p.book.list() {
		if within.Err() != nil {
			break
		}
		group.Go(func() error { return repay(within, id) })
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// repay gives one owed session. The gate is held.
func (p *pair) repay(ctx context.Context, id string) error {
	p.book.begin(id)
	defer p.book.end(id)
	changed, owed := p.book.take(id)
	if !owed {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	err := p.give(within, id, nil)
	if err != nil {
		p.book.owe(id, changed)
	}
	return err
}

// turned notes that the roles have changed. The gate is held for writing.
func (p *pair) turned(forced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing, p.problem = nil, nil
	p.equal = p.equal && !forced
}

// report tells how the pair stands. The gate is held, or the roles do not change meanwhile.
func (p *pair) report() api.SessionCopy {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := api.SessionCopy{Phase: api.CopyCopying, InStep: p.equal && p.failing == nil && p.problem == nil, Pending: p.book.size()}
	switch {
	case p.cutOver:
		r.Phase = api.CopyCutOver
	case r.InStep:
		r.Phase = api.CopyInStep
	}
	if why := cmp.Or(p.problem, p.failing); why != nil {
		r.Problem = why.Error()
	}
	for to, from := range map[**api.SessionComparison]*api.SessionComparison{&r.Comparing: p.comparing, &r.Compared: p.compared} {
		if from != nil {
			c := *from
			*to = &c
		}
	}
	return r
}

// start starts the keeper, which has been stopped or never ran.
func (p *pair) start() {
	life, end := context.WithCancel(context.Background())
	p.end = end
	p.rouse()
	p.work.Go(func() { p.keep(life) })
}

// stop ends the keeper and waits for it.
func (p *pair) stop() {
	p.end()
	p.work.Wait()
}

// keep gives the follower what is owed and compares, until life ends.
func (p *pair) keep(life context.Context) {
	ticker := time.NewTicker(settleEvery)
	defer ticker.Stop()
	var last time.Time
	for {
		select {
		case <-life.Done():
			return
		case <-ticker.C:
		case <-p.wake:
		}
		if err := p.settle(life); err != nil {
			pause(life, ticker)
		}
		p.mu.Lock()
		due := !p.equal || p.book.overflow() || time.Since(last) >= compareEvery
		p.mu.Unlock()
		if due && life.Err() == nil {
			p.compare(life)
			last = time.Now()
		}
	}
}

// pause lets one turn go by, so that a store that does not answer is not asked without end.
func pause(life context.Context, ticker *time.Ticker) {
	select {
	case <-ticker.C:
	case <-life.Done():
	}
}
