package pool

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/worker"
)

const (
	// parentClosePolicy leaves the workers alone when a run of their pool closes: mostly it continues as new. The workers
	// of a pool that was terminated are ended by the sweeper.
	parentClosePolicy = enums.PARENT_CLOSE_POLICY_ABANDON
	// childRetryDelay is the delay before workflows that could not be started are started again; it doubles with each
	// attempt that fails, however many workflows it was for, up to childRetryMaxDelay.
	childRetryDelay    = 2 * time.Second
	childRetryMaxDelay = 2 * time.Minute
	// maxStarting is how many workflows are being started at once. Temporal records each start in the pool's own workflow,
	// one after the other; a start that is not recorded within half a second is tried again only seconds later.
	maxStarting = 20
)

// children starts and ends the workflows of the slots.
type children struct{ *pool }

// startMissing starts the workflows of slots that have none, as many as fit the workflow task.
func (c children) startMissing() {
	starting := c.starting()
	for _, number := range c.Members {
		s := c.slot(number)
		if s != nil && (s.Started && !s.isClosed() || c.Now().Before(c.RetryAt)) {
			continue
		}
		if starting >= maxStarting || !c.fitsTask() {
			break
		}
		c.start(number)
		starting++
	}
	if wait := c.RetryAt.Sub(c.Now()); wait > 0 {
		c.wakeAfter(wait)
	}
}

// starting is how many workflows this run has started whose start Temporal has not confirmed yet. Each confirmation
// wakes the loop.
func (c children) starting() (n int) {
	for i := range c.Roster {
		if s := &c.Roster[i]; s.Child && s.isStarting() {
			n++
		}
	}
	return n
}

// start starts the workflow of a slot. A slot that had a workflow before continues its numbers, even when the start is
// retried.
func (c children) start(number int) {
	s := c.ensure(number)
	if s.Gone {
		s.Incarnation++ // the worker may have begun one more than it reported
	}
	run := worker.Run{Pool: c.name(), Slot: number, Spec: c.Spec, SpecVersion: c.SpecVersion, Searchable: c.Searchable}
	s.LeaseSeq = max(s.LeaseSeq, c.Now().UnixMilli()) // of all leases that workers of this name ever granted
	s.RestartID = fmt.Sprintf("start/%d", c.Now().UnixNano())
	run.LeaseSeq, run.Machine.Incarnation, run.LastRestart = s.LeaseSeq, s.Incarnation, s.RestartID
	if c.Breaker.Open() {
		run.StartsPaused = startsPausedReason
	}
	options := workflow.ChildWorkflowOptions{
		WorkflowID:        api.WorkerWorkflowID(c.name(), number),
		TaskQueue:         api.TaskQueue,
		ParentClosePolicy: parentClosePolicy,
		StaticSummary:     "worker " + c.worker(number),
	}
	if c.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(
			display.AttributePool.ValueSet(c.name()), display.AttributeState.ValueSet(string(lifecycle.Created)))
	}
	s.Started, s.Child, s.Gone, s.Removing, s.Resting, s.State, s.SpecVersion =
		true, true, false, false, false, lifecycle.Created, c.SpecVersion
	s.began = c.Now()
	c.pressure.leave(number)
	// the end of the previous workflow must not count as the end of this one
	s.Closed, s.RunID, s.reporter, s.ReportSeq, s.Order, s.EndLease = false, "", "", 0, nil, ""
	c.await(number, s.Incarnation,
		workflow.ExecuteChildWorkflow(workflow.WithChildOptions(c.Ctx, options), api.WorkflowWorker, run))
}

// await takes the start and the end of a slot's workflow, which continues the given incarnation, into the roster.
func (c children) await(number int, incarnation int64, future workflow.ChildWorkflowFuture) {
	var runID string
	c.OnFuture(future.GetChildWorkflowExecution(), func(f workflow.Future) {
		var execution workflow.Execution
		if err := f.Get(c.Ctx, &execution); err != nil {
			c.startFailed(number, err)
			return
		}
		runID = execution.RunID
		c.ensure(number).started(runID, incarnation, c.Now())
		c.StartFailures = 0
	})
	c.OnFuture(future, func(f workflow.Future) {
		s := c.slot(number)
		if s == nil || runID == "" || s.RunID != runID {
			return
		}
		s.Closed = true
		if !s.Gone {
			reason := "worker workflow closed"
			if err := f.Get(c.Ctx, nil); err != nil {
				reason += ": " + err.Error()
			}
			s.markLost(reason)
		}
	})
}

// startFailed retries a workflow that could not be started, later each time. If one of the same ID is open, it is of an
// earlier run of a pool with this name, most likely one that was terminated: the pool ends it.
func (c children) startFailed(number int, err error) {
	if temporal.IsWorkflowExecutionAlreadyStartedError(err) {
		c.signalWorker(number, api.SignalEnd, api.Control{Reason: "its pool was started again", By: "pool"})
	}
	s := c.ensure(number)
	s.Started, s.Child, s.Reason = false, false, display.Truncate("worker workflow could not be started: "+err.Error(),
		maxReason)
	if c.Now().Before(c.RetryAt) {
		return // another start of the same attempt has failed
	}
	c.RetryAt = c.Now().Add(min(childRetryDelay<<min(c.StartFailures, 10), childRetryMaxDelay))
	c.StartFailures++
}

// removeUnwanted ends the workers that are not to stay, and takes closed ones off the roster. A worker whose workflow
// is being started is ended when a signal can reach it.
func (c children) removeUnwanted() {
	for i := range c.Roster {
		if s := &c.Roster[i]; c.isUnwanted(*s) && !s.Removing && !s.Gone && !s.isStarting() {
			c.end(s)
		}
	}
	c.Roster = slices.DeleteFunc(c.Roster, func(s slot) bool {
		if !s.isClosed() || !c.isUnwanted(s) {
			return false
		}
		if s.Incarnation > 0 {
			if c.Removed == nil {
				c.Removed = map[int]usedNumbers{}
			}
			c.Removed[s.Slot] = usedNumbers{s.Incarnation, s.LeaseSeq}
		}
		return true
	})
}

func (c children) isUnwanted(s slot) bool { return c.Stopping || !c.isMember(s.Slot) }

// end ends a worker permanently.
func (c children) end(s *slot) {
	s.Removing = true
	if !s.Started {
		s.Gone = true
		return
	}
	reason := "slot removed"
	if c.Stopping {
		reason = "pool stopping"
	}
	c.signalWorker(s.Slot, api.SignalEnd, api.Control{Reason: reason, By: "pool", LeaseID: s.EndLease})
}
