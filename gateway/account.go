package gateway

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
)

// account counts what one worker did on this host, through all of its incarnations here. Its methods take no lock.
type account struct {
	requests, failed atomic.Int64
	took             atomic.Int64 // nanoseconds
	granted, refused atomic.Int64
	left             time.Time // when it was first found without a seat; zero while it has one. Guarded by the desk's mu.
}

// accountKept is how long a worker is still told of that has no process here any more: a scrape or two, so that its last calls
// are counted, and long enough for it to come back after a crash and go on counting.
const accountKept = 5 * time.Minute

func (a *account) call(failed bool, took time.Duration) {
	a.requests.Add(1)
	a.took.Add(int64(took))
	if failed {
		a.failed.Add(1)
	}
}

// books are the counts of one pool on this host.
type books struct {
	calls, waits *histogram
	refused      [len(refusals)]atomic.Int64
	accounts     map[string]*account // by worker; guarded by the desk's mu
}

// refusals are the codes a call of a pool may be refused with before a worker has seen it, apart from mistakes of its caller's.
var refusals = [...]api.Code{
	api.CodeQueueFull, api.CodeQueueTimeout, api.CodeRateLimited, api.CodeNoWorkers, api.CodeUnavailable, api.CodeDeadlineExceeded,
}

func newBooks() books {
	return books{calls: newHistogram(callBounds), waits: newHistogram(waitBounds), accounts: make(map[string]*account)}
}

// refuse counts a call that was not let begin. No error, no desk, and an error that says nothing about the pool count nothing.
func (d *desk) refuse(err error) {
	if err == nil || d == nil {
		return
	}
	code := api.CodeOf(err)
	if code == "" && errors.Is(err, context.DeadlineExceeded) {
		code = api.CodeDeadlineExceeded
	}
	if i := slices.Index(refusals[:], code); i >= 0 {
		d.books.refused[i].Add(1)
	}
}

// open is the account of a worker that gets a seat, under mu.
func (d *desk) open(worker string, now time.Time) *account {
	d.prune(now)
	a := d.books.accounts[worker]
	if a == nil {
		a = &account{}
		d.books.accounts[worker] = a
	}
	a.left = time.Time{}
	return a
}

// prune drops the accounts of workers that have long had no seat, under mu.
func (d *desk) prune(now time.Time) {
	seated := make(map[string]bool, len(d.order))
	for _, s := range d.order {
		seated[s.worker] = true
	}
	for worker, a := range d.books.accounts {
		switch {
		case seated[worker]:
			a.left = time.Time{}
		case a.left.IsZero():
			a.left = now
		case now.Sub(a.left) >= accountKept:
			delete(d.books.accounts, worker)
		}
	}
}

// refused counts a checkout that a worker refused to somebody who asked through this gateway, if the worker is here.
func (g *Gateway) refused(pool string, slot int) {
	d := g.knownDesk(pool)
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.books.accounts[api.WorkerName(pool, slot)]; a != nil {
		a.refused.Add(1)
	}
}
