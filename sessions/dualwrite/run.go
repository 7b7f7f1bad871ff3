package dualwrite

import (
	"cmp"
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// flushEvery is how often the backlog is flushed; it limits how late the secondary gets a use without a change.
	flushEvery = 300 * time.Millisecond
	// compareEvery is the pause between comparisons while the stores are equal. Until they are, comparisons follow without
	// a pause.
	compareEvery = time.Minute
)

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
		due := !r.equal || r.backlog.takeOverflow() || time.Since(compared) >= compareEvery
		r.mu.Unlock()
		if due && ctx.Err() == nil {
			r.compare(ctx)
			compared = time.Now()
		}
	}
}

// status reports the state of the copy. The caller holds stores.mu or has stopped all role changes.
func (r *replicator) status() api.SessionCopy {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := api.SessionCopy{
		Phase: api.CopyCopying, InSync: r.equal && r.secondaryErr == nil && r.compareErr == nil, Pending: r.backlog.len(),
		Comparing: clone(r.current), Compared: clone(r.last),
	}
	switch {
	case r.cutOver:
		status.Phase = api.CopyCutOver
	case status.InSync:
		status.Phase = api.CopyInSync
	}
	if err := cmp.Or(r.compareErr, r.secondaryErr); err != nil {
		status.Problem = err.Error()
	}
	return status
}

func clone(c *api.SessionComparison) *api.SessionComparison {
	if c == nil {
		return nil
	}
	return new(*c)
}
