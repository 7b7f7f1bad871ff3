package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

const (
	// leasesPerRound is how many checkouts, and no-op updates, are timed in a round, alternately.
	leasesPerRound = 30
	// Throughput is measured with leaseWorkers concurrent leases, for leaseSpan per side and round.
	leaseWorkers = 16
	leaseSpan    = 4 * time.Second

	checkoutTarget   = 1.05
	throughputTarget = 0.95
)

// measureLease compares the latency of a checkout with a no-op update, then the throughput of sixteen at a time.
func measureLease(ctx context.Context, b *bench) error {
	if _, err := b.agent(ctx, "lease"); err != nil {
		return err
	}
	if _, err := b.start(roleNoop, "noop", true, b.server.Address()); err != nil {
		return err
	}
	pool, err := b.startPool(ctx, b.echo("lease", leaseWorkers))
	if err != nil {
		return err
	}
	ids := make([]string, leaseWorkers)
	for i := range ids {
		ids[i] = fmt.Sprintf("noop/%d", i)
		if err := b.startNoop(ctx, ids[i]); err != nil {
			return err
		}
		b.atEnd(func(ctx context.Context) error { return b.endNoop(ctx, ids[i]) })
	}
	if err := b.checkoutLatency(ctx, pool, ids[0]); err != nil {
		return err
	}
	return b.leaseThroughput(ctx, pool, ids)
}

// checkoutLatency completes each checkin before the next checkout, so that worker and no-op workflow are idle.
func (b *bench) checkoutLatency(ctx context.Context, pool *tempool.Pool, noop string) error {
	r := b.result
	checkout := r.row(fmt.Sprintf("checkout, p50 of %d", leasesPerRound), "ms")
	update := r.row(fmt.Sprintf("no-op update, p50 of %d", leasesPerRound), "ms")
	for range b.rounds {
		var checkouts, updates []float64
		for range leasesPerRound {
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
			if err := b.updateNoop(ctx, noop); err != nil { // corresponds to the checkin
				return err
			}
		}
		checkout.add(median(checkouts))
		update.add(median(updates))
	}
	ratio := ratios("checkout ÷ no-op update", checkout, update)
	r.Rows = append(r.Rows, ratio)
	r.atMost("checkout p50, relative to a no-op update", ratio.Median, checkoutTarget, "×")
	return nil
}

func (b *bench) leaseThroughput(ctx context.Context, pool *tempool.Pool, noops []string) error {
	r := b.result
	leases := r.row(fmt.Sprintf("checkout and checkin, %d workers", leaseWorkers), "/s")
	pairs := r.row(fmt.Sprintf("no-op update and signal, %d workflows", leaseWorkers), "/s")
	refused := r.row("checkouts refused and retried", "%")
	var refusals atomic.Int64
	lease := func(ctx context.Context, slot int) error {
		for {
			lease, err := pool.CheckoutOnce(ctx, slot, tempool.CheckoutOptions{Holder: "bench"})
			if err == nil {
				return b.client.Checkin(ctx, api.CheckinRequest{LeaseID: lease.ID})
			}
			if !api.CodeOf(err).Retryable() || ctx.Err() != nil {
				return err
			}
			refusals.Add(1)
		}
	}
	pair := func(ctx context.Context, i int) error {
		if err := b.updateNoop(ctx, noops[i]); err != nil {
			return err
		}
		return b.signalNoop(ctx, noops[i])
	}
	for range b.rounds {
		refusals.Store(0)
		n, err := perSecond(ctx, leaseWorkers, leaseSpan, lease)
		if err != nil {
			return err
		}
		leases.add(n)
		refused.add(100 * float64(refusals.Load()) / (n * leaseSpan.Seconds()))
		if n, err = perSecond(ctx, leaseWorkers, leaseSpan, pair); err != nil {
			return err
		}
		pairs.add(n)
	}
	ratio := ratios("checkout and checkin ÷ no-op update and signal", leases, pairs)
	r.Rows = append(r.Rows, ratio)
	r.atLeast("checkout and checkin throughput, relative to no-op update and signal", ratio.Median, throughputTarget, "×")
	return nil
}
