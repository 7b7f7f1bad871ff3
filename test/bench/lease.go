package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

const (
	// leasesEach is how many leases, and no-op updates, are timed in one round; each takes its turn with the other.
	leasesEach = 30
	// leaseWorkers hold leases at one time when throughput is measured, for leaseSpan on each side of a round.
	leaseWorkers = 16
	leaseSpan    = 4 * time.Second

	checkoutTarget   = 1.15
	throughputTarget = 0.9
)

// measureLease times the durable checkout against a no-op update, first one by one and then sixteen at a time.
func measureLease(ctx context.Context, b *bench) (err error) {
	agent, err := b.agent(ctx, "lease")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.stop()) }()
	noop, err := b.start(roleNoop, "noop", b.server.Address())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, noop.stop()) }()
	pool, err := b.startPool(ctx, b.echo("lease", leaseWorkers))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPool(context.WithoutCancel(ctx), pool)) }()
	ids := make([]string, leaseWorkers)
	for i := range ids {
		ids[i] = fmt.Sprintf("noop/%d", i)
		if err := b.startNoop(ctx, ids[i]); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.endNoop(context.WithoutCancel(ctx), ids[i])) }()
	}
	if err := b.checkoutLatency(ctx, pool, ids[0]); err != nil {
		return err
	}
	return b.leaseThroughput(ctx, pool, ids)
}

// checkoutLatency gives each lease back, and sees that back, before the next is timed: the worker is then idle, as is the no-op workflow.
func (b *bench) checkoutLatency(ctx context.Context, pool *tempool.Pool, noop string) error {
	r := b.result
	checkout := r.row(fmt.Sprintf("checkout, p50 of %d", leasesEach), "ms")
	update := r.row(fmt.Sprintf("no-op update, p50 of %d", leasesEach), "ms")
	for range b.rounds {
		var checkouts, updates []float64
		for range leasesEach {
			began := time.Now()
			lease, err := pool.CheckoutOnce(ctx, 0, tempool.CheckoutOptions{Holder: "bench"})
			if err != nil {
				return err
			}
			checkouts = append(checkouts, milliseconds(time.Since(began)))
			if _, err := b.client.CheckinNow(ctx, api.CheckinRequest{LeaseID: lease.ID}); err != nil {
				return err
			}
			began = time.Now()
			if err := b.updateNoop(ctx, noop); err != nil {
				return err
			}
			updates = append(updates, milliseconds(time.Since(began)))
			if err := b.updateNoop(ctx, noop); err != nil { // the counterpart of the checkin
				return err
			}
		}
		checkout.add(median(checkouts))
		update.add(median(updates))
	}
	ratio := ratios("checkout ÷ no-op update", checkout, update)
	r.Rows = append(r.Rows, ratio)
	r.atMost("checkout p50, in no-op updates", ratio.Median, checkoutTarget, "×")
	return nil
}

func (b *bench) leaseThroughput(ctx context.Context, pool *tempool.Pool, noops []string) error {
	r := b.result
	leases := r.row(fmt.Sprintf("checkout and checkin, over %d workers", leaseWorkers), "/s")
	pairs := r.row(fmt.Sprintf("no-op update and signal, over %d workflows", leaseWorkers), "/s")
	refused := r.row("checkouts refused and tried again, share of a round's", "%")
	lease := func(ctx context.Context, i int) (refusals int, err error) {
		for {
			got, err := pool.CheckoutOnce(ctx, i, tempool.CheckoutOptions{Holder: "bench"})
			if err == nil {
				return refusals, b.client.Checkin(ctx, api.CheckinRequest{LeaseID: got.ID})
			}
			if !api.CodeOf(err).Retryable() || ctx.Err() != nil {
				return refusals, err
			}
			refusals++
		}
	}
	pair := func(ctx context.Context, i int) (int, error) {
		if err := b.updateNoop(ctx, noops[i]); err != nil {
			return 0, err
		}
		return 0, b.signalNoop(ctx, noops[i])
	}
	for range b.rounds {
		n, refusals, err := throughput(ctx, lease)
		if err != nil {
			return err
		}
		leases.add(n)
		refused.add(100 * refusals / n)
		if n, _, err = throughput(ctx, pair); err != nil {
			return err
		}
		pairs.add(n)
	}
	ratio := ratios("leases ÷ no-op pairs", leases, pairs)
	r.Rows = append(r.Rows, ratio)
	r.atLeast("checkout and checkin throughput, in no-op pairs", ratio.Median, throughputTarget, "×")
	return nil
}

// throughput has leaseWorkers goroutines do something for leaseSpan, each with its own number, and returns how often they did it,
// and how often they were refused, in a second.
func throughput(ctx context.Context, do func(context.Context, int) (refusals int, err error)) (perSecond, refusals float64, err error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		done  int
		no    int
		fails error
	)
	began := time.Now()
	for i := range leaseWorkers {
		group.Go(func() {
			var n, refused int
			var err error
			for time.Since(began) < leaseSpan && err == nil {
				var more int
				more, err = do(ctx, i)
				n, refused = n+1, refused+more
			}
			mu.Lock()
			defer mu.Unlock()
			done, no, fails = done+n, no+refused, errors.Join(fails, err)
		})
	}
	group.Wait()
	span := time.Since(began).Seconds()
	return float64(done) / span, float64(no) / span, fails
}
