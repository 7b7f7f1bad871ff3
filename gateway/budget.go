package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// bodyAllowance is up to which size, in bytes, a body takes nothing from the budget: so much each connection may have anyway.
	bodyAllowance = 64 << 10
	// bodyPatience is how long a request waits for others to give their memory back.
	bodyPatience = 30 * time.Second
)

// budget bounds the memory that request bodies take, all together. Who came first is served first, so that a large body is not
// starved by small ones.
type budget struct {
	total int64 // bytes

	mu      sync.Mutex
	taken   int64
	waiting []*claim
}

type claim struct {
	bytes   int64
	granted chan struct{}
}

func newBudget(total int64) *budget { return &budget{total: total} }

// take claims memory for a body of n bytes, and waits for it until ctx ends, but no longer than bodyPatience. A body that is larger
// than the whole budget gets all of it. The caller gives back once what it got.
func (b *budget) take(ctx context.Context, n int64) (giveBack func(), err error) {
	if n <= bodyAllowance {
		return func() {}, nil
	}
	n = min(n, b.total)
	back := func() { b.giveBack(n) }
	b.mu.Lock()
	if len(b.waiting) == 0 && b.taken+n <= b.total {
		b.taken += n
		b.mu.Unlock()
		return back, nil
	}
	c := &claim{bytes: n, granted: make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()

	timer := time.NewTimer(bodyPatience)
	defer timer.Stop()
	select {
	case <-c.granted:
		return back, nil
	case <-ctx.Done():
		err = api.Errorf(api.CodeUnavailable, "other requests' bodies take all the memory there is for bodies (--body-memory): %w", ctx.Err())
	case <-timer.C:
		err = api.Errorf(api.CodeUnavailable, "other requests' bodies have taken all the memory there is for bodies (--body-memory) for %s", bodyPatience)
	}
	if !b.leave(c) {
		back() // it was granted in the moment it was given up
	}
	return nil, err.(*api.Error).After(time.Second)
}

// leave takes a claim out of the queue; false means that it has been granted.
func (b *budget) leave(c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == c {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.grant() // who stood behind it may fit
			return true
		}
	}
	return false
}

func (b *budget) giveBack(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	b.grant()
}

// grant serves those who wait, in their order, while there is room, under mu.
func (b *budget) grant() {
	for len(b.waiting) > 0 && b.taken+b.waiting[0].bytes <= b.total {
		b.taken += b.waiting[0].bytes
		close(b.waiting[0].granted)
		b.waiting = b.waiting[1:]
	}
}
