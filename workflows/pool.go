package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// PoolRun is the whole state of a pool: its input, and what it hands to its next run when it continues as new. Only the
// fields of PoolStart are given by whoever starts a pool.
type PoolRun struct {
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

// usedNumbers are the highest numbers that the worker of a slot is known to have given out.
type usedNumbers struct {
	Incarnation int64 `json:"incarnation"`
	LeaseSeq    int64 `json:"lease_seq"`
}

// slot is one line of the roster: what its worker last said, and what the pool knows beyond it.
type slot struct {
	api.RosterEntry
	Child   bool `json:"-"` // started by this run: the parent close policy reaches it when this run closes
	Started bool `json:"born,omitempty"`
	// Closed says that the workflow of a child has ended; its worker says before that it is gone.
	Closed bool `json:"-"`
}

// ended reports whether nothing is left of the slot's workflow. A pool must not go, nor a slot begin anew, before that: whoever
// stops the last agent then would leave the workflow open.
func (s slot) isClosed() bool { return s.Gone && (!s.Child || s.Closed) }

// markLost takes a slot's workflow for gone that did not say so itself. One whose starts failed has used numbers that it did not tell.
func (s *slot) markLost(reason string) {
	if !s.Gone && (s.State == lifecycle.Pending || s.State == lifecycle.Starting) {
		s.Incarnation += UnreportedIncarnations + policy.MaxTries
	}
	s.Gone, s.Reason = true, reason
}

// isStarting reports whether Temporal has not said yet that the slot's workflow runs; nobody can be told anything until then.
func (s slot) isStarting() bool { return s.Started && s.RunID == "" }

// pool is one run. Like worker, it acts in one place, settle, on what handlers have written into PoolRun.
type pool struct {
	PoolRun
	ctx             workflow.Context
	selector        *Selector
	wake            workflow.Channel
	signals         []Inbox
	retry           *task
	wakeTimer       *task
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

// Pool is the workflow of a pool. It is never on the path of a lease or a call.
func Pool(ctx workflow.Context, run PoolRun) error {
	lasting, _ := workflow.NewDisconnectedContext(ctx)
	p := &pool{PoolRun: run, ctx: lasting, selector: NewSelector(ctx), wake: workflow.NewBufferedChannel(ctx, 1)}
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
			return workflow.NewContinueAsNewError(ctx, api.WorkflowPool, p.PoolRun)
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

// slot finds a line of the roster.
func (p *pool) slot(number int) *slot {
	i, found := slices.BinarySearchFunc(p.Roster, number, func(s slot, n int) int { return s.Slot - n })
	if !found {
		return nil
	}
	return &p.Roster[i]
}

// ensure finds a line of the roster or makes it.
func (p *pool) ensure(number int) *slot {
	i, found := slices.BinarySearchFunc(p.Roster, number, func(s slot, n int) int { return s.Slot - n })
	if !found {
		entry := api.RosterEntry{Slot: number, State: lifecycle.Created, Since: p.now()}
		if former, known := p.Removed[number]; known {
			entry.Incarnation, entry.LeaseSeq, entry.Gone = former.Incarnation, former.LeaseSeq, true
			delete(p.Removed, number)
		}
		p.Roster = slices.Insert(p.Roster, i, slot{RosterEntry: entry})
	}
	return &p.Roster[i]
}

// lostLeaseSeqs is added to the newest lease seq a pool knows of when a worker's workflow was ended by hand: seqs granted since
// its last report must not come again.
const lostLeaseSeqs = 1_000_000

// startChild starts the workflow of a slot. A slot that had a workflow before goes on counting where that one was, also when
// the start has to be tried again.
func (p *pool) startChild(number int) {
	s := p.ensure(number)
	if s.Gone {
		s.Incarnation++ // one more than was last reported may have begun
		s.LeaseSeq += lostLeaseSeqs
	}
	run := WorkerRun{
		Pool: p.PoolStart.Pool, Slot: number, Spec: p.Spec, SpecVersion: p.SpecVersion, Searchable: p.Searchable, LeaseSeq: s.LeaseSeq,
	}
	run.Machine.Incarnation = s.Incarnation
	if p.Breaker.Open() {
		run.StartsHeld = heldReason
	}
	options := workflow.ChildWorkflowOptions{
		WorkflowID:        api.WorkerWorkflowID(p.PoolStart.Pool, number),
		TaskQueue:         api.TaskQueue,
		ParentClosePolicy: parentClosePolicy,
		StaticSummary:     "worker " + api.WorkerName(p.PoolStart.Pool, number),
	}
	if p.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(
			AttributePool.ValueSet(p.PoolStart.Pool), AttributeState.ValueSet(string(lifecycle.Created)))
	}
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(p.ctx, options), api.WorkflowWorker, run)
	s.Started, s.Child, s.Gone, s.Leaving, s.Resting, s.State, s.SpecVersion = true, true, false, false, false, lifecycle.Created, p.SpecVersion
	s.Closed = false
	s.RunID = "" // or the end of the workflow before would be taken for this one's
	var runID string
	p.selector.AddFuture(future.GetChildWorkflowExecution(), func(f workflow.Future) {
		var execution workflow.Execution
		if err := f.Get(p.ctx, &execution); err != nil {
			p.childFailed(number, err)
			return
		}
		runID = execution.RunID
		p.ensure(number).RunID = runID
	})
	p.selector.AddFuture(future, func(f workflow.Future) {
		s := p.slot(number)
		if s == nil || runID == "" || s.RunID != runID {
			return
		}
		s.Closed = true
		if !s.Gone {
			reason := "its workflow was ended"
			if err := f.Get(p.ctx, nil); err != nil {
				reason += ": " + err.Error()
			}
			s.markLost(reason)
		}
	})
}

// childFailed handles a workflow that could not be started: one of that ID is still open, most likely on its way out.
func (p *pool) childFailed(number int, err error) {
	s := p.ensure(number)
	s.Started, s.Child, s.Reason = false, false, "its workflow could not be started: "+err.Error()
	p.RetryAt = p.now().Add(childRetryDelay)
}

func (p *pool) retryLater() {
	ctx, cancel := workflow.WithCancel(p.ctx)
	p.retry = &task{cancel, cancel}
	timer := workflow.NewTimerWithOptions(ctx, p.RetryAt.Sub(p.now()), workflow.TimerOptions{Summary: "before starting workers again"})
	p.selector.AddFuture(timer, func(f workflow.Future) {
		p.retried = f.Get(p.ctx, nil) == nil
		releaseTask(&p.retry)
	})
}

// removeUnwanted asks the workers to end that are not to stay, and takes those off the roster that have ended. One whose start
// is on its way is asked when it can hear it.
func (p *pool) removeUnwanted() {
	for i := range p.Roster {
		if s := &p.Roster[i]; p.isUnwanted(*s) && !s.Leaving && !s.Gone && !s.isStarting() {
			p.endWorker(s)
		}
	}
	p.Roster = slices.DeleteFunc(p.Roster, func(s slot) bool {
		if !s.isClosed() || !p.isUnwanted(s) {
			return false
		}
		if s.Incarnation > 0 {
			if p.Removed == nil {
				p.Removed = map[int]usedNumbers{}
			}
			p.Removed[s.Slot] = usedNumbers{s.Incarnation, s.LeaseSeq}
		}
		return true
	})
}

func (p *pool) isUnwanted(s slot) bool { return p.Stopping || s.Slot >= p.Size }

// endWorker asks a worker to end for good. It does not cancel it: a worker that was told that its pool continues as new takes the
// next cancellation for an echo of that.
func (p *pool) endWorker(s *slot) {
	s.Leaving = true
	if !s.Started {
		s.Gone = true
		return
	}
	p.signalWorker(s.Slot, api.SignalEnd, api.Control{Reason: "the pool has no more use for it", By: "pool"}, func(s *slot) {
		s.markLost("its workflow had ended before it was asked to")
	})
}

// stopAll dismisses every worker; the pool ends after the last.
func (p *pool) stopAll(reason string) int {
	if !p.Stopping {
		p.Stopping, p.Rollout, p.Disruptions, p.StartRequests, p.Pressure = true, nil, nil, nil, nil
		workflow.GetLogger(p.ctx).Info("pool stops", "pool", p.PoolStart.Pool, "reason", reason)
	}
	p.wakeUp()
	return len(p.Roster)
}

// workerChanged takes what a worker says of itself. What an earlier workflow of the same slot said late is not listened to.
func (p *pool) workerChanged(c api.WorkerChanged) {
	s := p.slot(c.Slot)
	if s == nil || (s.RunID != "" && c.RunID != "" && s.RunID != c.RunID) || c.Incarnation < s.Incarnation {
		return
	}
	p.countStarts(*s, c.RosterEntry)
	leaving := s.Leaving
	s.RosterEntry = c.RosterEntry
	s.Leaving, s.RunID, s.Started = leaving, c.RunID, true
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

// announceContinuation tells the children of this run that the cancellation which its end brings them is not meant.
func (p *pool) announceContinuation() {
	var told []workflow.Future
	for i := range p.Roster {
		if s := p.Roster[i]; s.Child && !s.Gone {
			told = append(told, workflow.SignalExternalWorkflow(p.ctx, api.WorkerWorkflowID(p.PoolStart.Pool, s.Slot), "",
				api.SignalPoolContinues, api.Control{By: "pool"}))
		}
	}
	for _, future := range told {
		_ = future.Get(p.ctx, nil) // one that has ended needs no warning
	}
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
