package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const (
	// sizingWorkers is the size of the pool whose costs are counted.
	sizingWorkers = 20
	// sizingWindow is how long an idle server, host or pool is observed.
	sizingWindow = 30 * time.Second
	// sizingSettle is the time after an action in which the server finishes what it caused.
	sizingSettle = 2 * time.Second
	// hostWorkers and poolWorkers are the numbers of workers of each host and pool in the projection.
	hostWorkers = 100
	poolWorkers = 1_000
)

// measureSizing measures what the control plane pays for each thing that happens, and projects it to large fleets.
// docs/sizing.md explains the model.
func measureSizing(ctx context.Context, b *bench) (err error) {
	if err := b.temporal(ctx); err != nil {
		return err
	}
	m := &sizing{bench: b, coefficients: map[string]cost{}}
	if err := wait(ctx, sizingWindow); err != nil { // a new server prepares itself
		return err
	}
	m.background, err = m.rate(ctx, cost{})
	if err != nil {
		return err
	}
	if _, err := b.agent(ctx, "sizing", "--capacity", strconv.Itoa(2*sizingWorkers)); err != nil {
		return err
	}
	if err := m.awaitHost(ctx, "sizing"); err != nil {
		return err
	}
	alone, err := m.rate(ctx, m.background, api.HostWorkflowID("sizing"), api.SweeperWorkflowID)
	if err != nil {
		return err
	}
	host, err := m.secondHost(ctx, alone)
	if err != nil {
		return err
	}
	m.report("a host in a day", host.times(day.Seconds()))
	m.report("a namespace in a day", alone.minus(host).times(day.Seconds()))
	m.ownHost = alone
	if err := m.starts(ctx); err != nil {
		return err
	}
	if err := m.life(ctx); err != nil {
		return err
	}
	m.project()
	b.result.note("each value is beyond what the idle server and the idle host need in the same time; hosts have %d "+
		"workers and pools %d in the projection", hostWorkers, poolWorkers)
	b.result.note("prices are Temporal Cloud's list of 2026-11-22 (docs.temporal.io/cloud/pricing), Business plan, " +
		"without the plan's fee and allowance")
	return nil
}

const day = 24 * time.Hour

// sizing is one run of the benchmark.
type sizing struct {
	*bench
	background   cost // of the server alone, per second
	ownHost      cost // of the host and the namespace, per second
	coefficients map[string]cost
}

// report adds the rows of a cost. A value below zero is noise.
func (m *sizing) report(what string, c cost) {
	c = cost{max(0, c.actions), max(0, c.persistence), max(0, c.events), max(0, c.bytes)}
	m.coefficients[what] = c
	m.result.row(what+": actions", "actions").add(c.actions)
	m.result.row(what+": persistence", "operations").add(c.persistence)
	if c.bytes > 0 {
		m.result.row(what+": history events", "events").add(c.events)
		m.result.row(what+": history", "bytes").add(c.bytes)
	}
}

// secondHost returns what one more host costs in a second.
func (m *sizing) secondHost(ctx context.Context, alone cost) (c cost, err error) {
	err = m.within(ctx, func() error {
		if _, err := m.agent(ctx, "second"); err != nil {
			return err
		}
		if err := m.awaitHost(ctx, "second"); err != nil {
			return err
		}
		c, err = m.rate(ctx, m.background.plus(alone), api.HostWorkflowID("second"))
		return err
	})
	return c, err
}

// awaitHost waits until an agent has joined its host and has finished its start.
func (m *sizing) awaitHost(ctx context.Context, hostID string) error {
	err := poll(ctx, waitTimeout, sizingSettle/10, func(ctx context.Context) error {
		_, err := m.client.Temporal().DescribeWorkflowExecution(ctx, api.HostWorkflowID(hostID), "")
		return err
	})
	if err != nil {
		return fmt.Errorf("the agent of host %s has not joined: %w", hostID, err)
	}
	return wait(ctx, 3*sizingSettle)
}

// rate observes the server for sizingWindow and returns its cost per second beyond a known one. Events are those of the
// given workflows.
func (m *sizing) rate(ctx context.Context, known cost, workflows ...string) (cost, error) {
	spent, took, err := m.spend(ctx, func() error { return wait(ctx, sizingWindow) }, workflows...)
	if err != nil {
		return cost{}, err
	}
	return spent.times(1 / took.Seconds()).minus(known), nil
}

// spend returns the cost of what do causes, and the time it took.
func (b *bench) spend(ctx context.Context, do func() error, workflows ...string) (cost, time.Duration, error) {
	before, err := b.costs(ctx, workflows)
	if err != nil {
		return cost{}, 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return cost{}, 0, err
	}
	if err := wait(ctx, sizingSettle); err != nil {
		return cost{}, 0, err
	}
	after, err := b.costs(ctx, workflows)
	return after.minus(before), time.Since(began), err
}

// beyondIdle is spend without what the server, the host and others need in the same time, per occurrence.
func (m *sizing) beyondIdle(ctx context.Context, occurrences int, others cost, do func() error,
	workflows ...string) (cost, error) {
	spent, took, err := m.spend(ctx, do, workflows...)
	idle := m.background.plus(m.ownHost).plus(others)
	return spent.minus(idle.times(took.Seconds())).times(1 / float64(occurrences)), err
}

// workflowsOf returns the workflow IDs of a pool and its workers.
func workflowsOf(pool string) []string {
	ids := []string{api.PoolWorkflowID(pool)}
	for slot := range sizingWorkers {
		ids = append(ids, api.WorkerWorkflowID(pool, slot))
	}
	return ids
}

// starts measures starting a worker, from the start of its pool until it is ready.
func (m *sizing) starts(ctx context.Context) error {
	var values []cost
	for round := range min(m.rounds, 5) {
		name := fmt.Sprintf("sized-%d", round)
		err := m.within(ctx, func() error {
			spent, err := m.beyondIdle(ctx, sizingWorkers, cost{}, func() error {
				_, err := m.startPoolWithin(ctx, m.echo(name, sizingWorkers), sizingSettle) // each poll costs something, too
				return err
			}, workflowsOf(name)...)
			values = append(values, spent)
			return err
		})
		if err != nil {
			return err
		}
	}
	m.report("a start", medianCost(values))
	return nil
}

// life measures what happens in the life of a worker: idling, samples, leases and continuing as new.
func (m *sizing) life(ctx context.Context) (err error) {
	const name = "sized"
	ids := workflowsOf(name)
	s := m.echo(name, sizingWorkers)
	samplesPerDay := float64(day) / float64(s.Health.Checkpoint.D())
	s.Health.Checkpoint = spec.Duration(time.Hour)
	pool, err := m.startPool(ctx, s)
	if err != nil {
		return err
	}
	stable := s.Lease.TTL.D() + 5*sizingSettle // the timer of the first lease has fired
	if err := wait(ctx, stable); err != nil {
		return err
	}
	idle, err := m.rate(ctx, m.background.plus(m.ownHost), ids...)
	if err != nil {
		return err
	}
	one := s
	one.Pool.Name, one.Pool.Size = "single", 1
	var poolAndWorker cost
	err = m.within(ctx, func() error {
		if _, err := m.startPool(ctx, one); err != nil {
			return err
		}
		if err := wait(ctx, stable); err != nil {
			return err
		}
		poolAndWorker, err = m.rate(ctx, m.background.plus(m.ownHost).plus(idle), api.PoolWorkflowID("single"),
			api.WorkerWorkflowID("single", 0))
		return err
	})
	if err != nil {
		return err
	}
	worker := idle.minus(poolAndWorker).times(1 / float64(sizingWorkers-1))
	m.report("a pool in a day", poolAndWorker.minus(worker).times(day.Seconds()))

	const leases = 5 // of each worker
	lease, err := m.beyondIdle(ctx, leases*sizingWorkers, idle, func() error {
		for i := range leases * sizingWorkers {
			lease, err := pool.CheckoutOnce(ctx, i%sizingWorkers, tempool.CheckoutOptions{Holder: "bench"})
			if err == nil {
				err = m.client.Checkin(ctx, api.CheckinRequest{LeaseID: lease.ID})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, ids...)
	if err != nil {
		return err
	}
	m.report("a lease", lease)

	next, err := m.beyondIdle(ctx, len(ids), idle, func() error {
		for _, id := range ids {
			if err := m.client.Temporal().SignalWorkflow(ctx, id, "", api.SignalForceContinue, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	next.events, next.bytes = 0, 0 // the count restarts
	m.report("continuing as new", next)

	sample, err := m.sample(ctx)
	if err != nil {
		return err
	}
	m.report("a sample (health.checkpoint)", sample)
	m.report("an idle worker in a day", worker.times(day.Seconds()).plus(sample.times(samplesPerDay)).plus(next))
	return nil
}

// sample measures a health checkpoint, on workers that have one each second.
func (m *sizing) sample(ctx context.Context) (c cost, err error) {
	const name = "sampled"
	s := m.echo(name, sizingWorkers)
	s.Health.Checkpoint = spec.Duration(sizingWindow / 10)
	if _, err := m.startPool(ctx, s); err != nil {
		return c, err
	}
	ids := workflowsOf(name)
	probes := func() (n int, err error) {
		for slot := range sizingWorkers {
			events, err := m.countEvents(ctx, name, slot)
			if err != nil {
				return 0, err
			}
			n += events.activities
		}
		return n, nil
	}
	before, err := probes()
	if err != nil {
		return c, err
	}
	perSecond, err := m.rate(ctx, m.background.plus(m.ownHost), ids...)
	if err != nil {
		return c, err
	}
	after, err := probes()
	if err != nil || after == before {
		return c, errors.Join(err, errors.New("no worker was sampled"))
	}
	return perSecond.times((sizingWindow + sizingSettle).Seconds() / float64(after-before)), nil
}

// project computes what idle fleets cost in a month, and a million leases.
func (m *sizing) project() {
	worker, host, lease :=
		m.coefficients["an idle worker in a day"], m.coefficients["a host in a day"], m.coefficients["a lease"]
	namespace, pool := m.coefficients["a namespace in a day"], m.coefficients["a pool in a day"]
	for _, workers := range []int{1_000, 10_000, 100_000} {
		fleet := worker.times(float64(workers)).plus(host.times(float64(workers) / hostWorkers)).plus(
			pool.times(float64(workers) / poolWorkers)).plus(namespace)
		name := strconv.Itoa(workers) + " idle workers"
		m.result.row(name+": actions in a month", "million").add(fleet.actions * monthDays / 1e6)
		m.result.row(name+": actions", "1/s").add(fleet.actions / day.Seconds())
		m.result.row(name+": persistence", "operations/s").add(fleet.persistence / day.Seconds())
		m.result.row(name+": open histories, on average", "MB").add(fleet.bytes / 2 / 1e6)
		m.result.row(name+": Temporal Cloud in a month",
			"USD").add(actionPrice(fleet.actions*monthDays) + fleet.bytes/2/1e9*monthHours*activePrice)
	}
	m.result.row("a million leases, first tier of Temporal Cloud", "USD").add(lease.actions * 1e6 * priceTiers[0].price)
}

func medianCost(values []cost) cost {
	of := func(field func(cost) float64) float64 {
		var all []float64
		for _, v := range values {
			all = append(all, field(v))
		}
		slices.Sort(all)
		return quantile(all, 0.5)
	}
	return cost{
		of(func(c cost) float64 { return c.actions }), of(func(c cost) float64 { return c.persistence }),
		of(func(c cost) float64 { return c.events }), of(func(c cost) float64 { return c.bytes }),
	}
}
