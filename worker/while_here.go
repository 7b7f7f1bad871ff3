package worker

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
)

// scanInterval is the time between two scans of this host's processes.
const scanInterval = time.Second

// whileHere keeps something open for each pool with a process on this host, and for linger after its last one.
type whileHere struct {
	list func() []*process.Process
	// key is what the open thing depends on: another one of the pool's newest process opens it anew. A process with a nil
	// key does not count.
	key           func(*process.Process) any
	open          func(pool string, newest *process.Process) (end func(), err error)
	failure       string        // what to log when open fails
	retry, linger time.Duration // retry is the delay after that
	log           *slog.Logger

	wake    chan struct{}    // has a value if a process should be seen at once
	held    map[string]*held // by pool; only run uses it
	holders sync.WaitGroup
}

// held is what is open, or opening, for one pool.
type held struct {
	key    any
	usedAt time.Time // when the pool last had a process here
	end    context.CancelFunc
}

// run scans until ctx ends, and returns when all is closed.
func (w *whileHere) run(ctx context.Context) {
	defer w.holders.Wait()
	for {
		w.scan(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-time.After(scanInterval):
		}
	}
}

// scan opens, replaces and closes, so that what is open matches the newest process of each pool.
func (w *whileHere) scan(ctx context.Context, now time.Time) {
	newest := map[string]*process.Process{}
	for _, p := range w.list() {
		pool := api.PoolOf(p.Worker())
		other := newest[pool]
		if w.key(p) != nil && (other == nil || p.Info().StartedAt.After(other.Info().StartedAt)) {
			newest[pool] = p
		}
	}
	for pool, p := range newest {
		current, key := w.held[pool], w.key(p)
		if current != nil && !reflect.DeepEqual(current.key, key) {
			current.end()
			current = nil
		}
		if current == nil {
			holding, end := context.WithCancel(ctx)
			current = &held{key: key, end: end}
			w.held[pool] = current
			w.holders.Go(func() { w.hold(holding, pool, p) })
		}
		current.usedAt = now
	}
	for pool, current := range w.held {
		if now.Sub(current.usedAt) > w.linger {
			current.end()
			delete(w.held, pool)
		}
	}
}

// hold opens and, when ctx ends, closes, which may take long: a process that comes meanwhile does not wait for it.
func (w *whileHere) hold(ctx context.Context, pool string, newest *process.Process) {
	for ctx.Err() == nil {
		end, err := w.open(pool, newest)
		if err == nil {
			<-ctx.Done()
			end()
			return
		}
		w.log.Warn(w.failure+"; retrying", "pool", pool, "error", err)
		sleep.For(ctx.Done(), w.retry)
	}
}
