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
func measureLease(ctx context.Context, b *bench) {
	b.agent("lease", false)
	b.startNoopWorker()
	pool := b.startPool(ctx, b.echo("lease", leaseWorkers), startPolled)
	ids := make([]string, leaseWorkers)
	for i := range ids {
		ids[i] = fmt.Sprintf("noop/%d", i)
		b.startNoop(ctx, ids[i])
	}
	b.checkoutLatency(ctx, pool, ids[0])
	b.leaseThroughput(ctx, pool, ids)
}

// checkoutLatency completes each checkin before the next checkout, so that worker and no-op workflow are idle.
func (b *bench) checkoutLatency(ctx context.Context, pool *tempool.Pool, noop string) {
	r := b.result
	checkout := r.row(fmt.Sprintf("checkout, p50 of %d", leasesPerRound), "ms")
	update := r.row(fmt.Sprintf("no-op update, p50 of %d", leasesPerRound), "ms")
	b.alternate(leasesPerRound, timedSide{checkout, func(int) float64 {
		var lease *tempool.Lease
		took := timed(func() (err error) {
			lease, err = pool.CheckoutOnce(ctx, 0, tempool.CheckoutOptions{Holder: "bench"})
			return err
		})
		must(b.client.CheckinNow(ctx, api.CheckinRequest{LeaseID: lease.ID}))
		return took
	}}, timedSide{update, func(int) float64 {
		took := timed(func() error { return b.updateNoop(ctx, noop) })
		check(b.updateNoop(ctx, noop)) // corresponds to the checkin
		return took
	}})
	ratio := r.ratio("checkout ÷ no-op update", checkout, update)
	r.atMost("checkout p50, relative to a no-op update", ratio.Median, checkoutTarget, "×")
}

func (b *bench) leaseThroughput(ctx context.Context, pool *tempool.Pool, noops []string) {
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
		return b.client.Temporal().SignalWorkflow(ctx, noops[i], "", noopSignal, nil)
	}
	for range b.rounds {
		refusals.Store(0)
		n := perSecond(ctx, leaseWorkers, leaseSpan, lease)
		leases.add(n)
		refused.add(100 * float64(refusals.Load()) / (n * leaseSpan.Seconds()))
		pairs.add(perSecond(ctx, leaseWorkers, leaseSpan, pair))
	}
	ratio := r.ratio("checkout and checkin ÷ no-op update and signal", leases, pairs)
	r.atLeast("checkout and checkin throughput, relative to no-op update and signal", ratio.Median, throughputTarget, "×")
}
