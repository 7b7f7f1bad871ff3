package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const (
	// sizingWorkers is the size of the pool whose costs are counted.
	sizingWorkers = 20
	// sizingStarts is how many pools are started; the cost of a start is the median.
	sizingStarts = 5
	// sizingWindow is how long an idle server, host or pool is observed.
	sizingWindow = 30 * time.Second
	// sizingSettle is the time after an action in which the server finishes what it caused.
	sizingSettle = 2 * time.Second

	day = 24 * time.Hour
)

// sizing is one run of the benchmark.
type sizing struct {
	*bench
	idle cost // per second: of the server alone, and then of the host and the namespace, too
}

// measureSizing measures what the control plane pays for each thing that happens: the coefficients of docs/sizing.md.
func measureSizing(ctx context.Context, b *bench) {
	m := &sizing{bench: b}
	wait(ctx, sizingWindow) // a new server prepares itself
	m.idle = m.rate(ctx, cost{})
	m.join(ctx, "sizing")
	alone := m.rate(ctx, cost{}, api.HostWorkflowID("sizing"), api.SweeperWorkflowID)
	m.idle = m.idle.plus(alone)
	var host cost
	m.within(ctx, func() {
		m.join(ctx, "second")
		host = m.rate(ctx, cost{}, api.HostWorkflowID("second"))
	})
	m.note("a host in a day", host.times(day.Seconds()))
	m.note("a namespace in a day", alone.minus(host).times(day.Seconds()))
	m.starts(ctx)
	m.life(ctx)
	b.result.note("each value is beyond what the idle server and the idle host need in the same time")
}

// note adds the rows of a cost. A value below zero is noise.
func (m *sizing) note(what string, c cost) {
	c = cost{max(0, c.actions), max(0, c.persistence), max(0, c.events), max(0, c.bytes)}
	m.result.row(what+": actions", "actions").add(c.actions)
	m.result.row(what+": persistence", "operations").add(c.persistence)
	if c.bytes > 0 {
		m.result.row(what+": history events", "events").add(c.events)
		m.result.row(what+": history", "bytes").add(c.bytes)
	}
}

// join starts an agent and waits until it has joined its host and has finished its start.
func (m *sizing) join(ctx context.Context, hostID string) {
	m.agent(hostID, false, "--capacity", strconv.Itoa(2*sizingWorkers))
	poll(ctx, sizingSettle/10, func(ctx context.Context) error {
		_, err := m.client.Temporal().DescribeWorkflowExecution(ctx, api.HostWorkflowID(hostID), "")
		return err
	})
	wait(ctx, 3*sizingSettle)
}

// beyondIdle is spend without what is idle, and others, need in the same time.
func (m *sizing) beyondIdle(ctx context.Context, others cost, do func(), workflows ...string) (cost, time.Duration) {
	spent, took := m.spend(ctx, do, workflows...)
	return spent.minus(m.idle.plus(others).times(took.Seconds())), took
}

// rate returns the cost per second of what happens without calls, beyond what is idle and others. Events are those of
// the given workflows.
func (m *sizing) rate(ctx context.Context, others cost, workflows ...string) cost {
	spent, took := m.beyondIdle(ctx, others, func() { wait(ctx, sizingWindow) }, workflows...)
	return spent.times(1 / took.Seconds())
}

// workflowsOf returns the workflow IDs of a pool and its workers.
func workflowsOf(pool string, size int) []string {
	ids := []string{api.PoolWorkflowID(pool)}
	for slot := range size {
		ids = append(ids, api.WorkerWorkflowID(pool, slot))
	}
	return ids
}

// starts measures starting a worker, from the start of its pool until it is ready.
func (m *sizing) starts(ctx context.Context) {
	var actions, persistence, events, bytes []float64
	for round := range sizingStarts {
		name := "sized-" + strconv.Itoa(round)
		m.within(ctx, func() {
			spent, _ := m.beyondIdle(ctx, cost{}, func() {
				m.startPool(ctx, m.echo(name, sizingWorkers), sizingSettle) // each poll costs something, too
			}, workflowsOf(name, sizingWorkers)...)
			actions, persistence = append(actions, spent.actions), append(persistence, spent.persistence)
			events, bytes = append(events, spent.events), append(bytes, spent.bytes)
		})
	}
	start := cost{median(actions), median(persistence), median(events), median(bytes)}
	m.note("a start", start.times(1.0/sizingWorkers))
}

// life measures what happens in the life of a worker: idling, samples, leases and continuing as new.
func (m *sizing) life(ctx context.Context) {
	s := m.echo("sized", sizingWorkers)
	ids := workflowsOf("sized", sizingWorkers)
	samplesPerDay := float64(day) / float64(s.Health.Checkpoint.D())
	s.Health.Checkpoint = spec.Duration(time.Hour)
	pool := m.startPool(ctx, s, startPolled)
	stable := s.Lease.TTL.D() + 5*sizingSettle // the timer of the first lease has fired
	wait(ctx, stable)
	idle := m.rate(ctx, cost{}, ids...)
	var poolAndWorker cost
	m.within(ctx, func() {
		one := s
		one.Pool.Name, one.Pool.Size = "single", 1
		m.startPool(ctx, one, startPolled)
		wait(ctx, stable)
		poolAndWorker = m.rate(ctx, idle, workflowsOf("single", 1)...)
	})
	worker := idle.minus(poolAndWorker).times(1 / float64(sizingWorkers-1))
	m.note("a pool in a day", poolAndWorker.minus(worker).times(day.Seconds()))

	const leases = 5 * sizingWorkers
	lease, _ := m.beyondIdle(ctx, idle, func() {
		for i := range leases {
			lease := must(pool.CheckoutOnce(ctx, i%sizingWorkers, tempool.CheckoutOptions{Holder: "bench"}))
			check(m.client.Checkin(ctx, api.CheckinRequest{LeaseID: lease.ID}))
		}
	}, ids...)
	m.note("a lease", lease.times(1.0/leases))

	next, _ := m.beyondIdle(ctx, idle, func() {
		for _, id := range ids {
			check(m.client.Temporal().SignalWorkflow(ctx, id, "", api.SignalForceContinue, nil))
		}
	})
	next = next.times(1 / float64(len(ids)))
	m.note("continuing as new", next)

	sample := m.sample(ctx)
	m.note("a sample (health.checkpoint)", sample)
	m.note("an idle worker in a day", worker.times(day.Seconds()).plus(sample.times(samplesPerDay)).plus(next))
}

// sample measures a health checkpoint, on workers that have one every few seconds.
func (m *sizing) sample(ctx context.Context) cost {
	s := m.echo("sampled", sizingWorkers)
	s.Health.Checkpoint = spec.Duration(sizingWindow / 10)
	m.startPool(ctx, s, startPolled)
	ids := workflowsOf("sampled", sizingWorkers)
	samples := func() (n int) {
		for _, id := range ids[1:] {
			for events := m.client.Temporal().GetWorkflowHistory(ctx, id, "", false,
				enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
				if must(events.Next()).GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
					n++
				}
			}
		}
		return n
	}
	before := samples()
	spent, _ := m.beyondIdle(ctx, cost{}, func() { wait(ctx, sizingWindow) }, ids...)
	n := samples() - before
	if n == 0 {
		check(errors.New("no worker was sampled"))
	}
	return spent.times(1 / float64(n))
}
