package pool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
	"github.com/tempool/tempool/workflows/worker"
)

// troupe plays the workers of a pool on a clock that skips time. Its actors live outside the test environment, which knows
// children of one run only, so the pool may continue as new as often as it likes: an interceptor takes what the pool says to a
// worker, and the actor answers with worker-changed. Behind each child stands an understudy, so that the pool has its future.
type troupe struct {
	t      *testing.T
	env    *testsuite.TestWorkflowEnvironment
	begin  time.Time
	steps  []*workflowtest.Step
	serial time.Duration // one nanosecond for each step ever
	runs   int

	actors  map[int]*actor // the newest of each slot
	hired   []worker.Run   // the inputs of all workers ever started, in order
	refused int            // starts that failed
	refuse  int            // how many of the next starts are to fail
	// rebalanced are the requests to share a budget out, and sharing what is answered to them.
	rebalanced []api.RebalanceRequest
	sharingMu  sync.Mutex // guards rebalanced: the hosts are asked at the same time
	sharing    func(api.RebalanceRequest) (api.RebalanceResult, error)
	peak       int // the most workers that were in the middle of a restart at one time
}

// actor is one worker's workflow.
type actor struct {
	troupe     *troupe
	run        worker.Run
	entry      api.RosterEntry
	understudy string // workflow ID
	open       bool
	child      bool // of the pool's run that is on
	excused    bool
	deafUntil  time.Time
	restarting bool
	scene      int // what was to happen in an earlier one does not
	heard      []heard
}

// handled is a message that asks nothing of an actor but to be remembered.
type heard struct {
	at      time.Duration // from the beginning
	name    string
	message any
}

// What things take in a troupe.
const (
	postTakes    = 10 * time.Millisecond // a message to a worker, and its acknowledgement
	closeTakes   = 20 * time.Millisecond // a run's end, until the parent close policy reaches its children
	renewalTakes = 50 * time.Millisecond // a worker's continuing as new; a cancellation in that time is lost
	sceneTakes   = time.Second           // a start, a drain
)

// hopeless is the command of a program that never starts: its workers come to rest.
const hopeless = "hopeless"

func newTroupe(t *testing.T) *troupe {
	return &troupe{t: t, begin: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), actors: map[int]*actor{}}
}

func poolOf(size int) Run {
	s := workflowtest.TestSpec()
	s.Pool.Size = size
	return Run{PoolStart: api.PoolStart{Pool: "t", Spec: s}}
}

// transitionAt has something done at a time counted from the beginning.
func (p *troupe) at(when time.Duration, do func()) { p.add(&workflowtest.Step{At: when, Do: do}) }

// in has something done after a while.
func (p *troupe) in(d time.Duration, do func()) {
	p.add(&workflowtest.Step{At: p.env.Now().Sub(p.begin) + d, Do: do})
}

// addUsage gives each step a moment of its own: the environment loses what is sent to a run in the very moment in which that run
// continues as new, which a server does not.
func (p *troupe) add(s *workflowtest.Step) {
	p.serial++
	s.At += p.serial
	p.steps = append(p.steps, s)
	if p.env != nil {
		p.schedule(s)
	}
}

func (p *troupe) schedule(s *workflowtest.Step) {
	p.env.RegisterDelayedCallback(func() {
		if !s.Done {
			s.Done = true
			s.Do()
		}
	}, max(time.Millisecond+s.At%time.Microsecond, s.At-p.env.Now().Sub(p.begin)))
}

// play runs the pool until it completes, through as many runs as it takes.
func (p *troupe) play(run Run) {
	now := p.begin
	for {
		p.runs++
		require.Less(p.t, p.runs, 2000, "the pool continues as new for ever")
		p.set(now)
		p.env.ExecuteWorkflow(api.WorkflowPool, run)
		require.True(p.t, p.env.IsWorkflowCompleted(), "the pool did not end")
		err := p.env.GetWorkflowError()
		var again *workflow.ContinueAsNewError
		if !errors.As(err, &again) {
			require.NoError(p.t, err)
			return
		}
		run = Run{}
		require.NoError(p.t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &run))
		now = p.env.Now()
		p.env = nil
		p.orphanChildren(now)
	}
}

// orphanChildren does to the children of a run that has ended what Temporal does by the parent close policy.
func (p *troupe) orphanChildren(now time.Time) {
	for _, a := range p.actors {
		if a.child && a.open {
			p.at(now.Sub(p.begin)+closeTakes, a.cancel)
		}
		a.child = false
	}
}

func (p *troupe) set(now time.Time) {
	var suite testsuite.WorkflowTestSuite
	p.env = suite.NewTestWorkflowEnvironment()
	p.env.SetStartTime(now)
	p.env.SetTestTimeout(workflowtest.Stalled)
	p.env.SetWorkflowRunTimeout(workflowtest.Never)
	p.env.SetWorkerOptions(sdk.Options{
		Interceptors: []interceptor.WorkerInterceptor{&prompter{troupe: p}}, DeadlockDetectionTimeout: workflowtest.Stalled,
	})
	p.env.SetOnChildWorkflowStartedListener(p.enter)
	p.env.RegisterActivityWithOptions(p.rebalance, activity.RegisterOptions{Name: api.ActivityRebalance})
	p.env.RegisterWorkflowWithOptions(Workflow, workflow.RegisterOptions{Name: api.WorkflowPool})
	p.env.RegisterWorkflowWithOptions(understudy, workflow.RegisterOptions{Name: api.WorkflowWorker})
	p.env.RegisterWorkflowWithOptions(understudy, workflow.RegisterOptions{Name: refusedWorkflow})
	p.env.OnWorkflow(refusedWorkflow, mock.Anything, mock.Anything).Return(testsuite.ErrMockStartChildWorkflowFailed)
	p.steps = slices.DeleteFunc(p.steps, func(s *workflowtest.Step) bool { return s.Done })
	for _, s := range p.steps {
		p.schedule(s)
	}
}

const (
	refusedWorkflow = "Refused"
	signalExit      = "exit"
)

// understudy is a child that does nothing until it is told how to end.
func understudy(ctx workflow.Context, _ worker.Run) error {
	var failure string
	workflow.GetSignalChannel(ctx, signalExit).Receive(ctx, &failure)
	if failure != "" {
		return errors.New(failure)
	}
	return nil
}

func (p *troupe) status() (answer api.PoolStatus) {
	p.t.Helper()
	value, err := p.env.QueryWorkflow(api.QueryStatus)
	require.NoError(p.t, err)
	require.NoError(p.t, value.Get(&answer))
	return answer
}

// update sends an update; its answer is there when the callback it was sent from has returned and the pool has had its turn.
func (p *troupe) update(name string, request any) *workflowtest.UpdateAnswer {
	a := &workflowtest.UpdateAnswer{}
	p.env.UpdateWorkflow(name, "", a, request)
	return a
}

// ask has an update sent at a time.
func (p *troupe) ask(when time.Duration, name string, request any) {
	p.at(when, func() { p.update(name, request) })
}

func (p *troupe) stopAt(when time.Duration) { p.ask(when, api.UpdateStop, api.Control{}) }

// open counts the workers whose workflow has not ended.
func (p *troupe) open() (n int) {
	for _, a := range p.actors {
		if a.open {
			n++
		}
	}
	return n
}

// hire takes the place of a child's start.
func (p *troupe) hire(run worker.Run) *actor {
	if p.refuse > 0 {
		p.refuse--
		p.refused++
		return nil
	}
	if former := p.actors[run.Slot]; former != nil && former.open {
		p.refused++
		return nil
	}
	a := &actor{troupe: p, run: run, child: true, open: true, entry: api.RosterEntry{
		Slot: run.Slot, State: lifecycle.Created, Incarnation: run.Machine.Incarnation, LeaseSeq: run.LeaseSeq, SpecVersion: run.SpecVersion,
	}}
	p.actors[run.Slot] = a
	p.hired = append(p.hired, run)
	return a
}

// then begins a new scene of an actor: what was still to come of the one before does not.
func (a *actor) then(after time.Duration, do func()) {
	scene := a.scene
	a.troupe.in(after, func() {
		if a.scene == scene && a.open {
			do()
		}
	})
}

// tell reports the actor's state to the pool.
func (a *actor) tell(state lifecycle.State) {
	a.entry.State, a.entry.Since = state, a.troupe.env.Now()
	word := api.WorkerChanged{RosterEntry: a.entry}
	a.troupe.in(postTakes, func() {
		a.troupe.env.SignalWorkflow(api.SignalWorkerChanged, word)
		if word.Gone {
			a.exit("")
		}
	})
}

// start plays an incarnation's beginning.
func (a *actor) start() {
	a.entry.Incarnation++
	a.entry.SpecVersion, a.entry.Resting, a.entry.Reason = a.run.SpecVersion, false, ""
	a.tell(lifecycle.Starting)
	a.then(sceneTakes, func() {
		a.restarting = false
		if a.run.Spec.Pool.Command[0] == hopeless {
			a.rest(lifecycle.Failed, "the model file is missing")
			return
		}
		a.tell(lifecycle.Ready)
	})
}

func (a *actor) rest(state lifecycle.State, reason string) {
	a.entry.Resting, a.entry.Reason = true, reason
	a.tell(state)
}

// signal takes what the pool says.
func (a *actor) signal(name string, argument any) {
	switch name {
	case api.SignalPoolContinues:
		a.excused = true
		return
	case api.SignalRestart:
		a.remember(name, argument)
		r := argument.(api.Restart)
		if r.Spec != nil {
			a.run.Spec, a.run.SpecVersion = *r.Spec, r.SpecVersion
		}
		a.scene++
		a.restarting = true
		a.troupe.countRestarting()
		a.tell(lifecycle.Draining)
		a.then(sceneTakes, a.start)
	case api.SignalDrain:
		a.remember(name, argument)
		a.scene++
		a.tell(lifecycle.Draining)
		a.then(sceneTakes, func() { a.rest(lifecycle.Stopped, argument.(api.Control).Reason) })
	case api.SignalEnd:
		a.end()
	case api.SignalRotationGrant:
		a.remember(name, argument)
		a.scene++
		a.restarting = true
		a.troupe.countRestarting()
		a.tell(lifecycle.Draining)
		a.then(sceneTakes, a.start)
	case api.SignalStartsHeld, api.SignalStartReleased, api.SignalLimitsApplied:
		a.remember(name, argument)
	default:
		require.FailNow(a.troupe.t, "a pool does not send "+name)
	}
}

func (a *actor) remember(name string, message any) {
	a.heard = append(a.heard, heard{a.troupe.env.Now().Sub(a.troupe.begin), name, message})
}

// heardOf is when the actor heard a message, each time.
func (a *actor) heardOf(name string) (times []time.Duration) {
	for _, h := range a.heard {
		if h.name == name {
			times = append(times, h.at)
		}
	}
	return times
}

func (p *troupe) rebalance(_ context.Context, r api.RebalanceRequest) (api.RebalanceResult, error) {
	p.sharingMu.Lock()
	p.rebalanced = append(p.rebalanced, r)
	p.sharingMu.Unlock()
	return p.sharing(r)
}

// rebalances is how often a budget was shared out.
func (p *troupe) rebalances() int {
	p.sharingMu.Lock()
	defer p.sharingMu.Unlock()
	return len(p.rebalanced)
}

func (p *troupe) countRestarting() {
	n := 0
	for _, a := range p.actors {
		if a.open && a.restarting {
			n++
		}
	}
	p.peak = max(p.peak, n)
}

// cancel does what a worker does: an excused cancellation is spent on a new run, and cancellations until then are lost.
func (a *actor) cancel() {
	now := a.troupe.env.Now()
	switch {
	case !a.open || now.Before(a.deafUntil):
	case a.excused:
		a.excused, a.deafUntil = false, now.Add(renewalTakes)
	default:
		a.end()
	}
}

// end drains and completes, with a last word to the pool.
func (a *actor) end() {
	a.scene++
	a.restarting = false
	a.tell(lifecycle.Draining)
	a.then(sceneTakes, a.goodbye)
}

// goodbye completes the workflow with the last word to the pool.
func (a *actor) goodbye() {
	a.entry.Gone = true
	a.tell(lifecycle.Stopped)
}

// exit closes the workflow; terminated by hand it says nothing to the pool.
func (a *actor) exit(failure string) {
	a.open = false
	if a.child {
		require.NoError(a.troupe.t, a.troupe.env.SignalWorkflowByID(a.understudy, signalExit, failure))
	}
}
