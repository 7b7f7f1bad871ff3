// Package pool is the durable workflow of a pool: it starts one worker workflow for each slot, and owns the spec, the
// roster and the disruption budget. It is never on the path of a lease or a call.
//
// Handlers only change Run; reconcile acts on it.
package pool

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// Run is the whole state of a pool: the input of its workflow, and the argument of its continue-as-new. The starter of
// a pool sets PoolStart only.
type Run struct {
	api.PoolStart
	SpecVersion   int64 `json:"spec_version,omitempty"`
	Size          int   `json:"size,omitempty"`
	Stopping      bool  `json:"stopping,omitempty"`
	ContinueEvery int   `json:"continue_every,omitempty"` // iterations, for tests

	RosterState
	DisruptionState
	ThrottleState
	AllocationState
	ScalingState
	// Pressure are the hosts that are short of memory.
	Pressure []hostPressure `json:"pressure,omitempty"`
	// Raised are the alerts that were raised and hold still.
	Raised []alert `json:"raised,omitempty"`
	// Unsent are signals to workers that were under way when the previous run ended.
	Unsent []loop.Message `json:"unsent,omitempty"`
	// Packed is the whole state, compressed; the other fields are then only for people to read.
	Packed []byte `json:"packed,omitempty"`
}

// RosterState is the pool's record of its slots.
type RosterState struct {
	// Members are the numbers of the workers that are to stay, ascending.
	Members []int     `json:"members,omitempty"`
	Roster  []slot    `json:"roster,omitempty"`  // by slot number
	RetryAt time.Time `json:"retry_at,omitzero"` // of the slots whose workflow could not be started
	// StartFailures counts consecutive workflows that could not be started.
	StartFailures int `json:"start_failures,omitempty"`
	// Removed are the numbers that removed slots have used, should the slots come back.
	Removed map[int]usedNumbers `json:"removed,omitempty"`
	// SessionsHost is the host whose embedded store has the pool's sessions.
	SessionsHost string `json:"sessions_host,omitempty"`
}

// DisruptionState is which workers are being replaced while they serve.
type DisruptionState struct {
	Rollout     *rollout     `json:"rollout,omitempty"`
	Disruptions []disruption `json:"disruptions,omitempty"` // requested by workers, oldest first
}

// ThrottleState decides which starts may go.
type ThrottleState struct {
	// Breaker holds starts when too many fail. StartRequests wait for it, or for NextStart (start.rate_per_second).
	Breaker       policy.Breaker       `json:"breaker,omitzero"`
	StartRequests []api.StartRequested `json:"start_requests,omitempty"`
	NextStart     time.Time            `json:"next_start,omitzero"`
}

// AllocationState is how the hosts' budgets are split among the workers.
type AllocationState struct {
	Shares            []api.Share `json:"shares,omitempty"`
	AllocationProblem string      `json:"allocation_problem,omitempty"`
	NextRebalance     time.Time   `json:"next_rebalance,omitzero"`
	// ReportedShares are the shares that were sent to workers.
	ReportedShares []api.Share `json:"reported_shares,omitempty"`
}

// pool is one run.
type pool struct {
	Run
	*loop.Loop
	wake   loop.Timer // see wakeAfter
	wakeAt time.Time

	members     members
	children    children
	throttle    throttle
	disruptions disruptions
	pressure    pressure
	allocation  allocation
	scaling     scaling

	// sent is of the present workflow task.
	sent sent
	// restarts counts those of this run.
	restarts int
	// evacuations are the newest that this run has started, by worker.
	evacuations map[int]workflow.ChildWorkflowFuture
}

const (
	// startBatch is how many starts of workers, and orders to them, one workflow task sends at most.
	startBatch = 100
	// maxTaskBytes bounds their size: the server takes 4 MiB for a whole workflow task.
	maxTaskBytes = 2 << 20
	// startOverhead is the size of a start without its spec, in bytes.
	startOverhead = 4 << 10
)

// newPool is a pool whose loop does not run yet.
func newPool(ctx workflow.Context, run Run) *pool {
	p := &pool{Run: unpack(run), Loop: loop.New(ctx), evacuations: map[int]workflow.ChildWorkflowFuture{}}
	p.OnUndelivered(p.undelivered)
	p.members, p.children, p.throttle, p.disruptions, p.pressure, p.allocation =
		members{pool: p}, children{p}, throttle{p}, disruptions{p}, pressure{p}, allocation{pool: p}
	p.scaling = scaling{pool: p}
	return p
}

// Workflow is the workflow of a pool.
func Workflow(ctx workflow.Context, run Run) error {
	p := newPool(ctx, run)
	if p.SpecVersion == 0 {
		p.SpecVersion, p.Size = 1, p.Spec.Scale.Clamp(p.Spec.Pool.Size)
	}
	p.members.fill()
	if err := p.register(ctx); err != nil {
		return err
	}
	p.Resend(p.Unsent)
	p.Unsent = nil
	p.OnCancel(ctx, func() { p.stopAll("pool workflow cancelled") })
	for {
		p.sent = sent{}
		for p.reconcile() {
		}
		workflow.SetCurrentDetails(p.Ctx, p.details())
		p.emitAlerts()
		if p.Stopping && len(p.Roster) == 0 && workflow.AllHandlersFinished(p.Ctx) {
			return nil
		}
		if p.mayContinue() {
			if p.DrainSignals() || p.HandleCancel() {
				continue
			}
			return workflow.NewContinueAsNewError(ctx, api.WorkflowPool, pack(p.carry(), packAbove))
		}
		if err := p.Await(); err != nil {
			return err
		}
		p.excuseSilence()
	}
}

const (
	// overdue is how late the loop wakes after an outage, and reportGrace what the hosts have then to report.
	overdue     = 10 * time.Second
	reportGrace = time.Minute
)

// excuseSilence gives the hosts time to report if the loop wakes late: Temporal or all agents were away, not they.
func (p *pool) excuseSilence() {
	if !p.wake.Running() && !p.wake.Take() || p.Now().Sub(p.wakeAt) < overdue {
		return
	}
	for i := range p.Pressure {
		p.Pressure[i].ReportedAt = p.Now()
	}
	until := p.Now().Add(reportGrace)
	for i := range p.Demand {
		if d := &p.Demand[i]; d.Expires.Before(until) {
			d.Expires = until
		}
	}
	p.Scaling.LowerSince, p.Scaling.IdleSince = time.Time{}, time.Time{}
}

// reconcile brings the roster closer to what is wanted, and reports whether there is more to do immediately.
func (p *pool) reconcile() bool {
	if !p.Stopping {
		p.scaling.follow()
	}
	p.members.shrink()
	p.children.removeUnwanted()
	if p.Stopping {
		return false
	}
	p.children.startMissing()
	p.pressure.expire()
	p.allocation.rebalance()
	p.disruptions.sendOrders()
	return p.throttle.release() || p.disruptions.grant() || p.disruptions.advanceRollout()
}

// sent is what a workflow task has sent of starts and orders, each of which has a size.
type sent struct{ messages, bytes, size int }

// fitsTask reports whether this workflow task may send one more start or order, and counts it. The result of one that
// was sent wakes the loop in a later task, which sends the next ones.
func (p *pool) fitsTask() bool {
	if p.sent.size == 0 {
		encoded, err := json.Marshal(p.Spec)
		if err != nil {
			panic(err) // it was decoded from JSON
		}
		p.sent.size = startOverhead + len(encoded)
	}
	if p.sent.messages > 0 && (p.sent.messages >= startBatch || p.sent.bytes+p.sent.size > maxTaskBytes) {
		return false
	}
	p.sent.messages++
	p.sent.bytes += p.sent.size
	return true
}

func (p *pool) name() string { return p.PoolStart.Pool }

// worker is the name of the worker in a slot.
func (p *pool) worker(number int) string { return api.WorkerName(p.PoolStart.Pool, number) }

// wakeAfter wakes the loop after d, unless it wakes earlier.
func (p *pool) wakeAfter(d time.Duration) {
	at := p.Now().Add(d)
	if p.wake.Running() && !at.Before(p.wakeAt) {
		return
	}
	p.wake.Cancel()
	p.wakeAt = at
	p.wake.Start(p.Loop, max(0, d), "before the pool reconciles again")
}

// ask starts an activity that any agent may run. A local one would hold the workflow task up, and with it every update.
func (p *pool) ask(name, summary string, timeout time.Duration, input any) workflow.Future {
	return loop.On(api.SweeperQueue, name, summary, timeout, input).Execute(p.Ctx)
}

// signalWorker sends a worker a message.
func (p *pool) signalWorker(number int, name string, message any) {
	p.Signal(api.WorkerWorkflowID(p.name(), number), name, message)
}

// newRestart is the ID of another restart.
func (p *pool) newRestart() string {
	p.restarts++
	return fmt.Sprintf("%d/%d", p.Now().UnixNano(), p.restarts)
}

// stopAll ends every worker. The pool completes after the last one.
func (p *pool) stopAll(reason string) int {
	if !p.Stopping {
		p.Stopping, p.Rollout, p.Disruptions, p.StartRequests, p.Pressure = true, nil, nil, nil, nil
		workflow.GetLogger(p.Ctx).Info("stopping pool", "pool", p.name(), "reason", reason)
	}
	p.WakeUp()
	return len(p.Roster)
}
