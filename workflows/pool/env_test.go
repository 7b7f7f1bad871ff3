package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/emit"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
	"github.com/tempool/tempool/workflows/sessions"
	"github.com/tempool/tempool/workflows/worker"
)

// fakePool runs a pool against fake workers, on a clock that skips time. Its workers live outside the test environment,
// which knows children of one run only, so the pool may continue as new as often as it likes: an interceptor takes what
// the pool says to a worker, and the fake worker answers with worker-changed. Behind each child stands a stub child, so
// that the pool has its future.
type fakePool struct {
	t   *testing.T
	env *testsuite.TestWorkflowEnvironment
	*workflowtest.Script
	runs  int
	every int // a new run begins after so many iterations; 0 is never

	workers map[int]*fakeWorker // the newest of each slot
	started []worker.Run        // the inputs of all workers ever started, in order
	refused int                 // starts that failed
	refuse  int                 // how many of the next starts are to fail
	// rebalanced are the requests to split a budget, rebalanceResult makes their results.
	rebalanced      []api.RebalanceRequest
	activitiesMu    sync.Mutex // guards rebalanced and, once the pool runs, leases
	rebalanceResult func(api.RebalanceRequest) (api.RebalanceResult, error)
	leases          map[int]bool  // on workers; nil fails the question
	reserved        func()        // is called when a worker was reserved
	beforeStart     func()        // is called when the pool starts a worker
	carried         func(*Run)    // changes the state that a run hands to the next one
	slowSignals     time.Duration // how long messages to workers take beyond signalLatency
	slowAnswers     time.Duration // after how long the pool learns that a message has arrived
	slowFailures    time.Duration // after how long the pool learns that a message found no worker
	away            time.Duration // how late timers fire that the pool starts now
	emitted         []string      // the pool's events: source, type and data
	evacuated       []sessions.EvacuateRun
	peak            int // the most workers that were in the middle of a restart at one time
}

// fakeWorker is one worker's workflow.
type fakeWorker struct {
	fakePool     *fakePool
	run          worker.Run
	entry        api.RosterEntry
	stubChild    string // workflow ID
	open         bool
	child        bool // of the pool's run that is on
	restarting   bool
	ending       bool
	unresponsive bool // ignores grants and restarts
	noCapacity   bool // its next starts wait for capacity
	generation   int  // what was to happen in an earlier one does not
	received     []received
}

// received is a signal that a fake worker records.
type received struct {
	at      time.Duration // from the beginning
	name    string
	message any
}

// Latencies of a fakePool.
const (
	signalLatency = 10 * time.Millisecond // a message to a worker, and its acknowledgement
	stepDuration  = time.Second           // a start, a drain
)

// neverStarts is the command of a program that never starts: its workers come to rest.
const neverStarts = "neverStarts"

func newFakePool(t *testing.T) *fakePool {
	p := &fakePool{t: t, Script: workflowtest.NewScript(), workers: map[int]*fakeWorker{}, reserved: func() {},
		beforeStart: func() {}, carried: func(*Run) {}}
	p.Outbound = func(environment interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
		return &outbound{interceptor.WorkflowOutboundInterceptorBase{Next: environment}, p}
	}
	return p
}

// workflow is Workflow with an agent that takes its events.
func (p *fakePool) workflow(ctx workflow.Context, run Run) error {
	return Workflow(emit.With(ctx, emit.Sink{Emit: func(eventType, source string, _ time.Time, data any) {
		content, err := json.Marshal(data)
		require.NoError(p.t, err)
		p.emitted = append(p.emitted, source+" "+eventType+" "+string(content))
	}}), run)
}

func poolOf(size int) Run {
	s := workflowtest.Spec()
	s.Pool.Size = size
	return Run{PoolStart: api.PoolStart{Pool: "t", Spec: s}}
}

// inWorkflow gives a test a pool whose loop does not run, and whose signals arrive.
func inWorkflow(t *testing.T, run Run, test func(p *pool)) {
	env := workflowtest.NewEnvironment(nil, sdk.Options{})
	env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		test(newPool(ctx, run))
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
}

// throughRuns plays a story with a new run every so many iterations; 0 is never.
func throughRuns(t *testing.T, every []int, story func(t *testing.T, p *fakePool)) {
	for _, n := range every {
		t.Run(fmt.Sprintf("a new run every %d iterations", n), func(t *testing.T) {
			p := newFakePool(t)
			p.every = n
			story(t, p)
		})
	}
}

// run executes the workflow until it completes, through as many runs as it takes.
func (p *fakePool) run(run Run) {
	run.ContinueEvery = max(run.ContinueEvery, p.every)
	now := p.Begin
	err := workflowtest.Execute(p.t, api.WorkflowPool, run, func() *testsuite.TestWorkflowEnvironment {
		p.runs++
		p.set(now)
		return p.env
	}, func(next *Run, _ int) {
		p.carried(next)
		now = p.env.Now()
		p.EndRun()
		p.orphanChildren()
	})
	require.NoError(p.t, err)
	p.RequireDone(p.t)
}

// orphanChildren makes the workers those of a run that has ended: the next one does not learn of their ends.
func (p *fakePool) orphanChildren() {
	for _, a := range p.workers {
		a.child = false
	}
}

func (p *fakePool) set(now time.Time) {
	p.env = p.NewEnvironment(nil)
	p.env.SetStartTime(now)
	p.env.SetWorkflowRunTimeout(workflowtest.Never)
	p.env.SetOnChildWorkflowStartedListener(p.childStarted)
	p.env.SetOnLocalActivityStartedListener(func(info *activity.Info, _ context.Context, _ []any) {
		p.t.Errorf("the local activity %s holds the workflow task of the pool up, and with it every update",
			info.ActivityType.Name)
	})
	p.env.RegisterActivityWithOptions(p.rebalance, activity.RegisterOptions{Name: api.ActivityRebalance})
	p.env.RegisterActivityWithOptions(p.reserveWorker, activity.RegisterOptions{Name: api.ActivityReserveWorker})
	p.env.RegisterWorkflowWithOptions(p.workflow, workflow.RegisterOptions{Name: api.WorkflowPool})
	p.env.RegisterWorkflowWithOptions(p.evacuate, workflow.RegisterOptions{Name: api.WorkflowEvacuateWorker})
	p.env.RegisterWorkflowWithOptions(stubChild, workflow.RegisterOptions{Name: api.WorkflowWorker})
	p.env.RegisterWorkflowWithOptions(stubChild, workflow.RegisterOptions{Name: refusedWorkflow})
	p.env.OnWorkflow(refusedWorkflow, mock.Anything, mock.Anything).Return(testsuite.ErrMockStartChildWorkflowFailed)
	p.StartRun(p.env)
}

const (
	refusedWorkflow = "Refused"
	signalClose     = "exit"
)

// stubChild is a child workflow that waits for a signal to close.
func stubChild(ctx workflow.Context, _ worker.Run) error {
	var failure string
	workflow.GetSignalChannel(ctx, signalClose).Receive(ctx, &failure)
	if failure != "" {
		return errors.New(failure)
	}
	return nil
}

func (p *fakePool) status() api.PoolStatus {
	return workflowtest.Query[api.PoolStatus](p.t, p.Script, api.QueryStatus)
}

func (p *fakePool) stopAt(when time.Duration) { p.UpdateAt(when, api.UpdateStop, api.Control{}) }

// runUntil is run of a pool that is stopped at a time.
func (p *fakePool) runUntil(end time.Duration, run Run) {
	p.stopAt(end)
	p.run(run)
}

// open counts the workers whose workflow has not ended.
func (p *fakePool) open() (n int) {
	for _, a := range p.workers {
		if a.open {
			n++
		}
	}
	return n
}

// startWorker starts a fake worker; nil if the start is refused.
func (p *fakePool) startWorker(run worker.Run) *fakeWorker {
	if p.refuse > 0 {
		p.refuse--
		p.refused++
		return nil
	}
	if previous := p.workers[run.Slot]; previous != nil && previous.open {
		p.refused++
		return nil
	}
	a := &fakeWorker{fakePool: p, run: run, child: true, open: true, entry: api.RosterEntry{
		Slot: run.Slot, State: lifecycle.Created, Incarnation: run.Machine.Incarnation, LeaseSeq: run.LeaseSeq,
		SpecVersion: run.SpecVersion,
	}}
	p.workers[run.Slot] = a
	p.started = append(p.started, run)
	return a
}

// then schedules the next step of a fake worker; a new generation drops it.
func (a *fakeWorker) then(after time.Duration, do func()) {
	generation := a.generation
	a.fakePool.In(after, func() {
		if a.generation == generation && a.open {
			do()
		}
	})
}

// report sends the fake worker's state to the pool.
func (a *fakeWorker) report(state lifecycle.State) {
	a.entry.State, a.entry.Since = state, a.fakePool.env.Now()
	word := a.entry
	a.fakePool.In(signalLatency, func() {
		a.fakePool.env.SignalWorkflow(api.SignalWorkerChanged, word)
		if word.Gone {
			a.exit("")
		}
	})
}

func (a *fakeWorker) start() {
	a.entry.Incarnation++
	a.entry.SpecVersion, a.entry.Resting, a.entry.Reason, a.entry.ReasonCode = a.run.SpecVersion, false, "", ""
	a.entry.Begun = a.run.LastRestart
	if a.noCapacity {
		a.entry.ReasonCode = api.ReasonNoCapacity
		a.report(lifecycle.Pending)
		return
	}
	a.report(lifecycle.Starting)
	a.then(stepDuration, func() {
		a.restarting = false
		if a.run.Spec.Pool.Command[0] == neverStarts {
			a.rest(lifecycle.Failed, "the model file is missing")
			return
		}
		a.report(lifecycle.Ready)
	})
}

func (a *fakeWorker) rest(state lifecycle.State, reason string) {
	a.entry.Resting, a.entry.Reason, a.entry.ReasonCode = true, reason, api.ReasonStopped
	if state == lifecycle.Failed {
		a.entry.ReasonCode = api.ReasonGaveUp
	}
	a.report(state)
}

// signal handles a signal of the pool. Nothing changes the end of a worker.
func (a *fakeWorker) signal(name string, argument any) {
	if a.ending {
		return
	}
	order, ordered := argument.(api.Order)
	if ordered {
		name = order.Kind
	}
	switch name {
	case api.SignalRestart, api.SignalRotationGrant:
		a.remember(name, argument)
		if a.unresponsive {
			return
		}
		if order.Spec != nil {
			a.run.Spec, a.run.SpecVersion = *order.Spec, order.SpecVersion
		}
		a.run.LastRestart = cmp.Or(order.ID, a.run.LastRestart)
		a.entry.RestOrderedAt = time.Time{}
		a.generation++
		a.restarting = true
		a.fakePool.countRestarting()
		a.report(lifecycle.Draining)
		a.then(stepDuration, a.start)
	case api.SignalDrain:
		a.remember(name, argument)
		a.generation++
		if order.Cause != api.CausePressure {
			a.entry.RestOrderedAt = a.fakePool.env.Now()
		}
		a.report(lifecycle.Draining)
		a.then(stepDuration, func() { a.rest(lifecycle.Stopped, order.Reason) })
	case api.SignalEnd:
		a.end()
	case api.SignalStartsPaused, api.SignalCheckin, api.SignalStartPermitted, api.SignalLimitsApplied:
		a.remember(name, argument)
	default:
		require.FailNow(a.fakePool.t, "a pool does not send "+name)
	}
}

func (a *fakeWorker) remember(name string, message any) {
	a.received = append(a.received, received{a.fakePool.env.Now().Sub(a.fakePool.Begin), name, message})
}

// timesOf are the times at which the fake worker received a signal.
func (a *fakeWorker) timesOf(name string) (times []time.Duration) {
	for _, h := range a.received {
		if h.name == name {
			times = append(times, h.at)
		}
	}
	return times
}

func (p *fakePool) rebalance(_ context.Context, r api.RebalanceRequest) (api.RebalanceResult, error) {
	p.activitiesMu.Lock()
	p.rebalanced = append(p.rebalanced, r)
	p.activitiesMu.Unlock()
	return p.rebalanceResult(r)
}

func (p *fakePool) leasesNow() map[int]bool {
	p.activitiesMu.Lock()
	defer p.activitiesMu.Unlock()
	return p.leases
}

// setLeases sets which workers have a lease; nil fails the question. An activity of an earlier run may still read them.
func (p *fakePool) setLeases(leases map[int]bool) {
	p.activitiesMu.Lock()
	defer p.activitiesMu.Unlock()
	p.leases = leases
}

// reserveWorker leases the first worker of the request that has no lease, or puts those that have one last.
func (p *fakePool) reserveWorker(_ context.Context, r api.ReserveWorkerRequest) (api.ReserveWorkerResult, error) {
	leases := p.leasesNow()
	if r.RequestID == "" {
		if leases == nil {
			return api.ReserveWorkerResult{}, errors.New("no agent answers")
		}
		slices.Reverse(r.Slots)
		leased := slices.DeleteFunc(slices.Clone(r.Slots), func(slot int) bool { return !leases[slot] })
		free := slices.DeleteFunc(r.Slots, func(slot int) bool { return leases[slot] })
		return api.ReserveWorkerResult{Order: slices.Concat(free, leased)}, nil
	}
	for _, slot := range r.Slots {
		if leased, known := leases[slot]; known && !leased {
			p.reserved()
			return api.ReserveWorkerResult{Slot: slot, LeaseID: api.LeaseID("t", slot, 1, 1)}, nil
		}
	}
	return api.ReserveWorkerResult{Problem: "clients have leased all of them"}, nil
}

// placeOn has the workers report that they are ready on these hosts, in turn.
func (p *fakePool) placeOn(hosts ...string) {
	for i := range len(p.workers) {
		p.workers[i].entry.Host = hosts[i%len(hosts)]
		p.workers[i].report(lifecycle.Ready)
	}
}

// rebalances counts the requests to split a budget.
func (p *fakePool) rebalances() int {
	p.activitiesMu.Lock()
	defer p.activitiesMu.Unlock()
	return len(p.rebalanced)
}

func (p *fakePool) countRestarting() {
	n := 0
	for _, a := range p.workers {
		if a.open && a.restarting {
			n++
		}
	}
	p.peak = max(p.peak, n)
}

// end drains and completes, with a last report to the pool. Asked again, a worker changes nothing.
func (a *fakeWorker) end() {
	if a.ending {
		return
	}
	a.generation++
	a.restarting, a.ending = false, true
	a.report(lifecycle.Draining)
	a.then(stepDuration, a.reportGone)
}

// reportGone completes the workflow with the last report to the pool.
func (a *fakeWorker) reportGone() {
	a.entry.Gone = true
	a.report(lifecycle.Stopped)
}

// exit closes the workflow without a report, unless it has closed.
func (a *fakeWorker) exit(failure string) {
	if !a.open {
		return
	}
	a.open = false
	if a.child {
		require.NoError(a.fakePool.t, a.fakePool.env.SignalWorkflowByID(a.stubChild, signalClose, failure))
	}
}
