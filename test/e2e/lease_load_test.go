package e2e

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// heldLease is a lease and the time for which its holder used it, between the end of the checkout and the start of the
// checkin.
type heldLease struct {
	worker     string
	seq        int64
	begin, end time.Time
}

// leaseLoad takes leases of a pool, calls under them and returns them.
type leaseLoad struct {
	pool    *tempool.Pool
	granted atomic.Int64
	called  atomic.Int64

	mu   sync.Mutex
	held []heldLease
}

func (l *leaseLoad) run(ctx context.Context, holder string) {
	for n := 0; ctx.Err() == nil; n++ {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		lease, err := l.pool.Checkout(once,
			tempool.CheckoutOptions{Holder: holder, TTL: 20 * time.Second, Wait: 5 * time.Second})
		if err != nil { // part of the control plane is down: the load continues as soon as it can
			cancel()
			continue
		}
		l.granted.Add(1)
		held := heldLease{worker: lease.Worker, seq: lease.Seq, begin: time.Now()}
		if _, err := lease.CallRaw(once, "echo", []byte(strconv.Itoa(n))); err == nil {
			l.called.Add(1)
		}
		held.end = time.Now()
		if lease.Err() != nil { // the lease ended before its use did
			held.end = held.begin
		}
		cancel()
		l.checkin(ctx, lease)
		l.mu.Lock()
		l.held = append(l.held, held)
		l.mu.Unlock()
	}
}

// checkin returns a lease, however long the call under it took: a lease that expires costs the process of its worker.
func (l *leaseLoad) checkin(ctx context.Context, lease *tempool.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTimeout)
	defer cancel()
	_ = lease.Checkin(ctx, api.OutcomeOK) // else the control plane is down, and the lease expires
}

// requireExclusive fails the test if two leases of one worker overlap, or have the same number.
func (l *leaseLoad) requireExclusive(t *testing.T) {
	byWorker := map[string][]heldLease{}
	for _, held := range l.held {
		byWorker[held.worker] = append(byWorker[held.worker], held)
	}
	for worker, held := range byWorker {
		slices.SortFunc(held, func(a, b heldLease) int { return a.begin.Compare(b.begin) })
		for i := 1; i < len(held); i++ {
			require.Less(t, held[i-1].seq, held[i].seq, "%s: leases out of order", worker)
			require.False(t, held[i].begin.Before(held[i-1].end), "%s: leases %d and %d overlap", worker, held[i-1].seq,
				held[i].seq)
		}
	}
}
