package pool

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// Run is the whole state of a pool: its input, and what it hands to its next run when it continues as new. Only the
// fields of PoolStart are given by whoever starts a pool.
type Run struct {
	api.PoolStart
	SpecVersion   int64        `json:"spec_version,omitempty"`
	Size          int          `json:"size,omitempty"`
	Roster        []slot       `json:"roster,omitempty"` // by slot number
	Rollout       *rollout     `json:"rollout,omitempty"`
	Disruptions   []disruption `json:"turns,omitempty"` // by their own wish, in the order they asked
	Stopping      bool         `json:"stopping,omitempty"`
	ContinueEvery int          `json:"continue_every,omitempty"`
	RetryAt       time.Time    `json:"retry_at,omitzero"` // of slots whose workflow could not be started
	// Breaker holds starts when too many fail; Wishes wait for it, or for NextStart (start.rate_per_second).
	Breaker       policy.Breaker `json:"breaker,omitzero"`
	StartRequests []startRequest `json:"wishes,omitempty"`
	NextStart     time.Time      `json:"next_start,omitzero"`
	// Pressure are the hosts that are short of memory.
	Pressure []hostPressure `json:"pressure,omitempty"`
	// Shares are the hosts' budgets as they were last shared out, NextRebalance is when that is done again.
	Shares            []api.Share `json:"shares,omitempty"`
	AllocationProblem string      `json:"allocation_problem,omitempty"`
	NextRebalance     time.Time   `json:"next_rebalance,omitzero"`
	// ReportedShares are those that workers were last told of.
	ReportedShares []api.Share `json:"told_shares,omitempty"`
	// SessionsHost is the host that keeps the pool's sessions in a store of its own.
	SessionsHost string `json:"sessions_host,omitempty"`
	// Former has the numbers that slots had reached which were scaled away, should they be wanted again.
	Removed map[int]usedNumbers `json:"former,omitempty"`
}

// pool is one run. Like worker, it acts in one place, settle, on what handlers have written into Run.
type pool struct {
	Run
	ctx             workflow.Context
	selector        *loop.Selector
	wake            workflow.Channel
	signals         []loop.Inbox
	retry           *loop.Task
	wakeTimer       *loop.Task
	wakeAt          time.Time // when governor wakes the pool
	rebalancing     int       // hosts that share their budget out
	retried         bool
	iterations      int
	signalsInFlight int // messages on their way to workers; a run that ends before they are delivered loses them
	force           bool
}

const (
	childRetryDelay = 2 * time.Second // before a slot's workflow is tried again
	startBatch      = 100             // children started in one workflow task
)

// Workflow is the workflow of a pool. It is never on the path of a lease or a call.
func Workflow(ctx workflow.Context, run Run) error {
	lasting, _ := workflow.NewDisconnectedContext(ctx)
	p := &pool{Run: run, ctx: lasting, selector: loop.NewSelector(ctx), wake: workflow.NewBufferedChannel(ctx, 1)}
	if p.SpecVersion == 0 {
		p.SpecVersion, p.Size = 1, p.Spec.Pool.Size
	}
	p.selector.AddReceive(p.wake, func(c workflow.ReceiveChannel) { c.Receive(ctx, nil) })
	if err := p.register(ctx); err != nil {
		return err
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		p.stopAll("the pool's workflow was cancelled")
	})
	for {
		for p.reconcile() {
		}
		workflow.SetCurrentDetails(p.ctx, p.details())
		if p.Stopping && len(p.Roster) == 0 && workflow.AllHandlersFinished(p.ctx) {
			return nil
		}
		if p.mayContinue() {
			p.announceContinuation()
			if p.drainSignals() || !p.mayContinue() { // updates were let in while the children were told
				continue
			}
			return workflow.NewContinueAsNewError(ctx, api.WorkflowPool, p.Run)
		}
		p.iterations++
		p.selector.Select(ctx)
	}
}

// reconcile brings the roster nearer to what is wanted and reports whether there is more to do at once.
func (p *pool) reconcile() bool {
	p.removeUnwanted()
	if p.Stopping {
		return false
	}
	if p.retried {
		p.retried, p.RetryAt = false, time.Time{}
	}
	started := 0
	for number := 0; number < p.Size && started < startBatch; number++ {
		s := p.slot(number)
		if s != nil && (s.Started && !s.isClosed() || p.now().Before(p.RetryAt)) {
			continue
		}
		p.startChild(number)
		started++
	}
	if p.now().Before(p.RetryAt) && p.retry == nil {
		p.retryLater()
	}
	p.expirePressure()
	p.rebalance()
	return p.releaseStarts() || p.grantDisruptions() || p.roll() || started == startBatch
}

func (p *pool) now() time.Time { return workflow.Now(p.ctx) }

// stopAll dismisses every worker; the pool ends after the last.
func (p *pool) stopAll(reason string) int {
	if !p.Stopping {
		p.Stopping, p.Rollout, p.Disruptions, p.StartRequests, p.Pressure = true, nil, nil, nil, nil
		workflow.GetLogger(p.ctx).Info("pool stops", "pool", p.PoolStart.Pool, "reason", reason)
	}
	p.wakeUp()
	return len(p.Roster)
}

func (p *pool) mayContinue() bool {
	due := p.force || workflow.GetInfo(p.ctx).GetContinueAsNewSuggested() || (p.ContinueEvery > 0 && p.iterations >= p.ContinueEvery)
	if !due || p.signalsInFlight > 0 || p.rebalancing > 0 || p.Stopping || !workflow.AllHandlersFinished(p.ctx) {
		return false
	}
	for i := range p.Roster { // the answer to a start or a dismissal would be lost
		if s := p.Roster[i]; s.isStarting() || (s.Leaving && !s.Gone) {
			return false
		}
	}
	return p.retry == nil
}

func (p *pool) drainSignals() bool {
	found := false
	for _, box := range p.signals {
		for box.Receive() {
			found = true
		}
	}
	return found
}

func (p *pool) wakeUp() { p.wake.SendAsync(true) }

// sameSpec reports whether two specs would run the same thing; size is not part of that.
func sameSpec(a, b spec.Spec) bool {
	a.Pool.Size = b.Pool.Size
	return equalJSON(a, b)
}
