package sweeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

const (
	// backlogInterval is the time between two rounds, and backlogsPerRound of how many pools one round reads the backlog:
	// more pools take turns.
	backlogInterval  = 2 * time.Second
	backlogsPerRound = 40
	// poolsInterval is the time between two lists of the pools.
	poolsInterval = 10 * time.Second
	// waitingSpecAge is after how long the spec of a pool with waiting calls is read again.
	waitingSpecAge = 30 * time.Second
	// waitingRepeat is after how long a demand that has not changed is reported again, and leastWaitingExpiry how long a
	// pool counts a report at least.
	waitingRepeat      = 20 * time.Second
	leastWaitingExpiry = time.Minute
	// waitingTimeout bounds one request.
	waitingTimeout = 5 * time.Second
)

// waitingCalls reports the calls of Execute that wait in Temporal to the pools whose size follows the demand. No
// gateway sees those calls, and no agent polls for a pool without workers.
type waitingCalls struct {
	list    func(ctx context.Context) (pools []string, err error)
	waiting func(ctx context.Context, pool string) (int, error)
	status  func(ctx context.Context, pool string) (api.PoolStatus, error)
	report  func(ctx context.Context, pool string, d api.Demand) error
	log     *slog.Logger

	pools    []string
	listedAt time.Time
	next     int // of pools
	measured map[string]*waitingPool
	failing  bool
}

// waitingPool is a pool with calls that wait, or with a demand that was reported for such calls.
type waitingPool struct {
	policy.Measured
	spec       spec.Spec
	specAt     time.Time
	noWorkers  bool
	reportedAt time.Time
}

func newWaitingCalls(s *Sweeper) *waitingCalls {
	return &waitingCalls{
		list: s.Pools, waiting: s.waitingCalls, status: s.Status, log: s.Logger, measured: map[string]*waitingPool{},
		report: func(ctx context.Context, pool string, d api.Demand) error {
			return s.signal(ctx, api.PoolWorkflowID(pool), api.SignalDemand, d)
		},
	}
}

// run reads backlogs until ctx ends.
func (w *waitingCalls) run(ctx context.Context) {
	for now := range sleep.Ticks(ctx.Done(), backlogInterval) {
		err := w.round(ctx, now)
		if err != nil && !w.failing && ctx.Err() == nil {
			w.log.Warn("cannot count the workflows' calls that wait for pools; retrying", "error", err)
		}
		w.failing = err != nil
	}
}

// round reads the backlogs of the next pools. An error for one pool does not stop the others.
func (w *waitingCalls) round(ctx context.Context, now time.Time) error {
	if now.Sub(w.listedAt) >= poolsInterval {
		if err := w.readPools(ctx); err != nil {
			return err
		}
		w.listedAt = now
	}
	var failure error
	for range min(len(w.pools), backlogsPerRound) {
		pool := w.pools[w.next%len(w.pools)]
		w.next = (w.next + 1) % len(w.pools)
		if err := w.read(ctx, pool, now); err != nil {
			failure = fmt.Errorf("pool %s: %w", pool, err)
		}
	}
	return failure
}

// readPools lists the pools, and forgets those that have ended.
func (w *waitingCalls) readPools(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitingTimeout)
	defer cancel()
	pools, err := w.list(ctx)
	if err != nil {
		return fmt.Errorf("list the pools: %w", err)
	}
	w.pools = pools
	maps.DeleteFunc(w.measured, func(pool string, _ *waitingPool) bool { return !slices.Contains(pools, pool) })
	return nil
}

// read reads the backlog of one pool, and reports the demand that follows from it.
func (w *waitingCalls) read(ctx context.Context, pool string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, waitingTimeout)
	defer cancel()
	n, err := w.waiting(ctx, pool)
	p := w.measured[pool]
	if err != nil || n == 0 && p == nil {
		return err
	}
	if p == nil {
		p = &waitingPool{}
		w.measured[pool] = p
	}
	if n > 0 && (now.Sub(p.specAt) >= waitingSpecAge || p.spec.Scale.Follows() && p.Reported == 0) {
		status, err := w.status(ctx, pool)
		if err != nil {
			return err
		}
		p.spec, p.specAt, p.noWorkers = status.Spec, now, status.ScaledToZero()
	}
	if err := w.measure(ctx, pool, p, n, now); err != nil {
		return err
	}
	if n == 0 && p.Reported == 0 {
		delete(w.measured, pool)
	}
	return nil
}

// measure takes one sample. A report that fails is made again at the next one. A backlog that shrank is reported at
// once: its calls have gone to agents, which report them, or were cancelled.
func (w *waitingCalls) measure(ctx context.Context, pool string, p *waitingPool, n int, now time.Time) error {
	meter := policy.DemandMeterOf(p.spec)
	meter.Hold = 0
	next, changed := meter.Next(p.Measured, policy.Demand{Waiting: n, NoWorkers: p.noWorkers}, now)
	if changed || next.Reported > 0 && now.Sub(p.reportedAt) >= waitingRepeat {
		err := w.report(ctx, pool, api.Demand{Host: api.DemandOfWorkflows, Load: next.Reported, Waiting: n,
			ExpiryMS: w.expiry().Milliseconds()})
		if err != nil {
			return err
		}
		p.reportedAt = now
	}
	p.Measured = next
	return nil
}

// expiry is how long a pool counts a report: until the next one is due, and two cycles through all pools more.
func (w *waitingCalls) expiry() time.Duration {
	rounds := (len(w.pools) + backlogsPerRound - 1) / backlogsPerRound
	return max(leastWaitingExpiry, waitingRepeat+2*time.Duration(rounds)*backlogInterval)
}

// waitingCalls is about how many calls of Execute wait in Temporal for a pool. It may count some that were cancelled,
// until an agent polls.
func (s *Sweeper) waitingCalls(ctx context.Context, pool string) (int, error) {
	answer, err := s.Temporal.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: s.Namespace, TaskQueue: &taskqueue.TaskQueue{Name: api.PoolQueue(pool)},
		TaskQueueType: enums.TASK_QUEUE_TYPE_ACTIVITY, ReportStats: true,
	})
	if err != nil {
		return 0, fmt.Errorf("describe the task queue: %w", err)
	}
	if answer.GetStats() == nil {
		return 0, errors.New("this Temporal server does not report how many tasks wait in a queue; upgrade it to release " +
			"1.29 or newer")
	}
	return int(answer.GetStats().GetApproximateBacklogCount()), nil
}
