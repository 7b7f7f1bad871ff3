package worker

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/emit"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// workerEnv runs a worker against a fake host, on a clock that skips time, through as many runs as it takes.
type workerEnv struct {
	t   *testing.T
	env *testsuite.TestWorkflowEnvironment
	*workflowtest.Script
	runs  int
	every int // a new run begins after so many iterations; 0 is never

	starts, stops, probes atomic.Int64
	stateSize             int    // of the newest run's input, in bytes of JSON
	sent                  []sent // what the worker said to its pool

	watchScript map[int64]watchScript // what the host observes of each incarnation, and when

	mu        sync.Mutex // activities look at these beside the steps
	startedAt map[int64]time.Time
	watches   []api.WatchRequest

	emitted []emitted // the worker's events; only its own goroutines touch them while it runs

	log log.Logger // the worker's; nil is the environment's own

	// slow is how long activities take, by name.
	slow map[string]time.Duration

	// Results of activities; at first, those of a host on which all goes well.
	onStart   func(api.StartRequest) (api.StartResult, error)
	onWatch   func(api.WatchRequest) (api.WatchResult, error)
	onProbe   func(api.WatchRequest) (api.WatchResult, error)
	onStop    func(api.StopRequest) (api.StopResult, error)
	onDrain   func(api.DrainRequest) (api.DrainResult, error)
	onReset   func(api.ResetRequest) (api.ResetResult, error)
	onSuspend func(api.SuspendRequest) (api.SuspendResult, error)
	onResume  func(api.ResumeRequest) (api.ResumeResult, error)

	suspends []api.SuspendRequest
	resumes  []api.ResumeRequest
}

type watchScript struct {
	after  time.Duration
	result api.WatchResult
}

// sent is one signal to the pool.
type sent struct {
	name    string
	message any
}

type emitted struct {
	eventType string
	data      any
}

// workflow is Workflow with an agent that takes its events.
func (s *workerEnv) workflow(ctx workflow.Context, run *Run) error {
	return Workflow(emit.With(ctx, emit.Sink{Emit: func(eventType, source string, _ time.Time, data any) {
		require.Equal(s.t, api.WorkerSource(api.WorkerName(run.Pool, run.Slot)), source)
		s.emitted = append(s.emitted, emitted{eventType, data})
	}}), run)
}

// signalsOf are the signals of one name to the pool.
func (s *workerEnv) signalsOf(name string) (messages []any) {
	for _, m := range s.sent {
		if m.name == name {
			messages = append(messages, m.message)
		}
	}
	return messages
}

func newWorkerEnv(t *testing.T) *workerEnv {
	s := &workerEnv{t: t, Script: workflowtest.NewScript(), watchScript: map[int64]watchScript{},
		startedAt: map[int64]time.Time{},
		onStart: func(r api.StartRequest) (api.StartResult, error) {
			return api.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), Endpoint: "unix:/gateway", TookMS: 1,
				Rules: r.Rules}, nil
		},
		onWatch: always[api.WatchRequest](api.WatchResult{}),
		onProbe: always[api.WatchRequest](api.WatchResult{Event: api.WatchProbePassed,
			Sample: &api.Sample{MemoryBytes: 1 << 20}}),
		onStop: always[api.StopRequest](api.StopResult{Exit: lifecycle.Exit{Interrupted: true},
			Reason: "stopped gracefully"}),
		onDrain: always[api.DrainRequest](api.DrainResult{}),
		onReset: always[api.ResetRequest](api.ResetResult{}),
		onSuspend: func(r api.SuspendRequest) (result api.SuspendResult, err error) { // without calls in flight
			if r.LeaseID != "" {
				result.Checkin = &api.CheckinRequest{LeaseID: r.LeaseID, Usage: api.Usage{Requests: 3}}
			}
			return result, nil
		},
		onResume: always[api.ResumeRequest](api.ResumeResult{})}
	s.Sent = func(name string, message any) { s.sent = append(s.sent, sent{name, message}) }
	return s
}

// always is an activity with one result.
func always[Q, A any](result A) func(Q) (A, error) { return func(Q) (A, error) { return result, nil } }

// throughRuns plays a story with a new run every so many iterations; 0 is never.
func throughRuns(t *testing.T, every []int, story func(t *testing.T, s *workerEnv)) {
	for _, n := range every {
		t.Run(fmt.Sprintf("a new run every %d iterations", n), func(t *testing.T) {
			s := newWorkerEnv(t)
			s.every = n
			story(t, s)
		})
	}
}

// run executes the workflow until it completes, through as many runs as it takes.
func (s *workerEnv) run(run Run) {
	run.ContinueEvery = max(run.ContinueEvery, s.every)
	now := s.Begin
	err := workflowtest.Execute(s.t, api.WorkflowWorker, &run, func() *testsuite.TestWorkflowEnvironment {
		s.runs++
		s.set(now)
		return s.env
	}, func(_ **Run, size int) { s.stateSize, now = size, s.env.Now() })
	require.NoError(s.t, err)
	s.RequireDone(s.t)
}

// runThrough is run of a worker that is cancelled after the last step.
func (s *workerEnv) runThrough(run Run) {
	s.At(s.Last(), s.cancel)
	s.run(run)
}

func (s *workerEnv) set(now time.Time) {
	var suite testsuite.WorkflowTestSuite
	if s.log != nil {
		suite.SetLogger(s.log)
	}
	env := s.NewEnvironment(&suite)
	s.env = env
	s.env.SetStartTime(now)
	s.env.SetWorkflowRunTimeout(workflowtest.Never)
	s.env.RegisterWorkflowWithOptions(s.workflow, workflow.RegisterOptions{Name: api.WorkflowWorker})
	activities := map[string]any{
		api.ActivityAwaitCapacity: s.awaitRoom, api.ActivityStart: s.start, api.ActivityWatch: s.watch,
		api.ActivityProbe: s.probe, api.ActivityStop: s.stop,
		api.ActivityDrain:   func(_ context.Context, r api.DrainRequest) (api.DrainResult, error) { return s.onDrain(r) },
		api.ActivityReset:   func(_ context.Context, r api.ResetRequest) (api.ResetResult, error) { return s.onReset(r) },
		api.ActivitySuspend: s.suspend, api.ActivityResume: s.resume,
	}
	for name, do := range activities {
		s.env.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: name})
	}
	for name, do := range activities {
		if s.slow[name] > 0 {
			argument := mock.AnythingOfType(reflect.TypeOf(do).In(1).String())
			s.env.OnActivity(name, mock.Anything, argument).Return(do).AfterFn(func() time.Duration { return s.slow[name] })
		}
	}
	s.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
		switch info.ActivityType.Name {
		case api.ActivityStart:
			var r api.StartRequest
			require.NoError(s.t, args.Get(&r))
			if script, found := s.watchScript[r.Incarnation]; found {
				s.In(script.after, func() { s.report(r.Incarnation) })
			}
		case api.ActivityStop, api.ActivitySuspend, api.ActivityResume:
			require.Positive(s.t, info.HeartbeatTimeout, "its task may be lost long before its start-to-close time-out")
		case api.ActivityWatch:
			var r api.WatchRequest
			require.NoError(s.t, args.Get(&r))
			if _, found := s.watchScript[r.Incarnation]; found && r.Failures > 0 && s.isOver(r.Incarnation, env.Now()) {
				s.In(time.Millisecond, func() { s.report(r.Incarnation) })
			}
		}
	})
	s.env.OnSignalExternalWorkflow(mock.Anything, api.PoolWorkflowID("t"), mock.Anything, mock.Anything,
		mock.Anything).Return(nil)
	s.StartRun(env)
}

// isOver reports whether the time of an incarnation's script has passed.
func (s *workerEnv) isOver(incarnation int64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !now.Before(s.startedAt[incarnation].Add(s.watchScript[incarnation].after))
}

// report sends what the host has observed of an incarnation by its script.
func (s *workerEnv) report(incarnation int64) {
	s.env.SignalWorkflow(api.SignalProcessEvents, api.ProcessEvents{
		Events: []api.ProcessEvent{{Incarnation: incarnation, WatchResult: s.watchScript[incarnation].result}}})
}

func (s *workerEnv) awaitRoom(context.Context, api.Process) (api.AwaitCapacityResult, error) {
	return api.AwaitCapacityResult{Host: "h"}, nil
}

func (s *workerEnv) start(_ context.Context, r api.StartRequest) (api.StartResult, error) {
	s.starts.Add(1)
	s.mu.Lock()
	s.startedAt[r.Incarnation] = s.env.Now()
	s.mu.Unlock()
	return s.onStart(r)
}

func (s *workerEnv) watch(_ context.Context, r api.WatchRequest) (api.WatchResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, r)
	return s.onWatch(r)
}

func (s *workerEnv) probe(_ context.Context, r api.WatchRequest) (api.WatchResult, error) {
	s.probes.Add(1)
	return s.onProbe(r)
}

func (s *workerEnv) stop(_ context.Context, r api.StopRequest) (api.StopResult, error) {
	s.stops.Add(1)
	return s.onStop(r)
}

func (s *workerEnv) suspend(_ context.Context, r api.SuspendRequest) (api.SuspendResult, error) {
	s.mu.Lock()
	s.suspends = append(s.suspends, r)
	s.mu.Unlock()
	return s.onSuspend(r)
}

func (s *workerEnv) resume(_ context.Context, r api.ResumeRequest) (api.ResumeResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumes = append(s.resumes, r)
	return s.onResume(r)
}

func (s *workerEnv) signal(name string, payload any) func() {
	return func() { s.env.SignalWorkflow(name, payload) }
}

func (s *workerEnv) cancel() { s.env.CancelWorkflow() }

func (s *workerEnv) state() api.WorkerState {
	return workflowtest.Query[api.WorkerState](s.t, s.Script, api.QueryState)
}
func (s *workerEnv) metrics() api.WorkerMetrics {
	return workflowtest.Query[api.WorkerMetrics](s.t, s.Script, api.QueryMetrics)
}
func (s *workerEnv) history() []lifecycle.Transition {
	return workflowtest.Query[[]lifecycle.Transition](s.t, s.Script, api.QueryHistory)
}

// ready requires that the worker is ready in an incarnation.
func (s *workerEnv) ready(incarnation int64) api.WorkerState {
	s.t.Helper()
	st := s.state()
	require.Equal(s.t, lifecycle.Ready, st.State)
	require.Equal(s.t, incarnation, st.Incarnation)
	return st
}

// startOn starts each incarnation on a host.
func (s *workerEnv) startOn(hosts map[int64]string) {
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		return api.StartResult{Host: hosts[r.Incarnation], Epoch: 1, PID: 1000 + int(r.Incarnation), Endpoint: "unix:/old",
			Rules: r.Rules}, nil
	}
}

// errStartFailed is how failStarts fails a start.
var errStartFailed = temporal.NewNonRetryableApplicationError("the model file is missing", string(api.CodeStartFailed),
	nil)

// failStarts fails the starts that fails selects.
func (s *workerEnv) failStarts(fails func(api.StartRequest) bool) {
	s.failStartsBy(errStartFailed, fails)
}

// failStartsBy is failStarts with another failure.
func (s *workerEnv) failStartsBy(err error, fails func(api.StartRequest) bool) {
	starts := s.onStart
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		if fails(r) {
			return api.StartResult{}, err
		}
		return starts(r)
	}
}

func allStarts(api.StartRequest) bool { return true }

// ofSuccessors selects the starts of processes beside those that they replace.
func ofSuccessors(r api.StartRequest) bool { return len(r.KeepIncarnations) > 0 }

// restartLeased restarts the worker after a minute, while a client has a lease.
func (s *workerEnv) restartLeased() {
	s.At(30*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.At(time.Minute, s.signal(api.SignalRestart, api.Order{Reason: "new moon"}))
}

// events are the events of the history.
func (s *workerEnv) events() []lifecycle.EventKind {
	var kinds []lifecycle.EventKind
	for _, t := range s.history() {
		kinds = append(kinds, t.Event)
	}
	return kinds
}

func standalone() Run {
	return Run{Pool: "t", Slot: 0, Spec: workflowtest.Spec(), SpecVersion: 1, Standalone: true}
}

// inPool is a worker of a pool.
func inPool(change func(*spec.Spec)) Run {
	run := rotating(change)
	run.Standalone = false
	return run
}

func crash(after time.Duration) watchScript {
	return watchScript{after, api.WatchResult{Event: api.WatchExited, Reason: "was ended by SIGKILL",
		Exit: &lifecycle.Exit{Signal: "SIGKILL"}}}
}
