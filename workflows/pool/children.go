package pool

import (
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/loop"
	"github.com/tempool/tempool/workflows/worker"
)

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
	run := worker.Run{
		Pool: p.PoolStart.Pool, Slot: number, Spec: p.Spec, SpecVersion: p.SpecVersion, Searchable: p.Searchable, LeaseSeq: s.LeaseSeq,
	}
	run.Machine.Incarnation = s.Incarnation
	if p.Breaker.Open() {
		run.StartsHeld = startsHeldReason
	}
	options := workflow.ChildWorkflowOptions{
		WorkflowID:        api.WorkerWorkflowID(p.PoolStart.Pool, number),
		TaskQueue:         api.TaskQueue,
		ParentClosePolicy: parentClosePolicy,
		StaticSummary:     "worker " + api.WorkerName(p.PoolStart.Pool, number),
	}
	if p.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(
			display.AttributePool.ValueSet(p.PoolStart.Pool), display.AttributeState.ValueSet(string(lifecycle.Created)))
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
	p.retry = &loop.Task{cancel, cancel}
	timer := workflow.NewTimerWithOptions(ctx, p.RetryAt.Sub(p.now()), workflow.TimerOptions{Summary: "before starting workers again"})
	p.selector.AddFuture(timer, func(f workflow.Future) {
		p.retried = f.Get(p.ctx, nil) == nil
		loop.ReleaseTask(&p.retry)
	})
}

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

// parentClosePolicy has Temporal cancel the workers of a pool that was ended by hand; a cancelled worker stops its process.
const parentClosePolicy = enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL
