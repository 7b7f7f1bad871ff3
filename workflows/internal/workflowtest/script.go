// Package workflowtest is what the tests of the workflows share.
package workflowtest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

const (
	// DeadlockTimeout is how long one workflow task may take on a slow machine; the SDK's own limit is one second.
	DeadlockTimeout = 2 * time.Minute
	// Never is a duration that no test reaches.
	Never = 10_000 * time.Hour
)

// NewEnvironment is an environment without the SDK's limits of real time, which a slow machine reaches: three seconds
// for a test, and one for a workflow task. A nil suite is a new one.
func NewEnvironment(suite *testsuite.WorkflowTestSuite, options worker.Options) *testsuite.TestWorkflowEnvironment {
	if suite == nil {
		suite = &testsuite.WorkflowTestSuite{}
	}
	env := suite.NewTestWorkflowEnvironment()
	options.DeadlockDetectionTimeout = DeadlockTimeout
	env.SetWorkerOptions(options)
	env.SetTestTimeout(DeadlockTimeout)
	return env
}

// Spec is the spec of the pool "t".
func Spec() spec.Spec {
	s := spec.Default()
	s.Pool.Name = "t"
	s.Pool.Command = []string{"true"}
	s.Health.Checkpoint = spec.Duration(5 * time.Minute)
	return s
}

// Execute executes a workflow until it completes, through as many runs as it takes, and returns its error. begin makes
// the environment of each run, and again, unless it is nil, sees the input of each run but the first, and its size in
// bytes of JSON.
func Execute[R any](t *testing.T, name string, input R, begin func() *testsuite.TestWorkflowEnvironment,
	again func(next *R, size int)) error {
	for range 2000 {
		env := begin()
		env.ExecuteWorkflow(name, input)
		require.True(t, env.IsWorkflowCompleted(), "the workflow did not end")
		err := env.GetWorkflowError()
		var continued *workflow.ContinueAsNewError
		if !errors.As(err, &continued) {
			return err
		}
		input = *new(R)
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(continued.Input, &input))
		if again != nil {
			again(&input, len(continued.Input.GetPayloads()[0].GetData()))
		}
	}
	require.Fail(t, "the workflow continues as new for ever")
	return nil
}

// Script is what a test does to a workflow, by the environment's clock. A script outlives the runs of a workflow: a
// step that one run does not reach waits for the next.
type Script struct {
	Begin time.Time // of the first run
	steps []*step
	env   *testsuite.TestWorkflowEnvironment // of the current run
	// Sent sees each signal to another workflow, if it is set, in the order in which the workflow sends them: the mocks of
	// the environment run beside each other.
	Sent func(name string, message any)
	// Scheduled sees the options of each activity, if it is set.
	Scheduled func(name string, options workflow.ActivityOptions)
	// Outbound, if it is set, stands between each run's workflow and its environment.
	Outbound func(environment interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor
	// begun says that the current run's workflow runs. Until then the environment's clock follows the real one, so that
	// on a busy machine a step may come before its first task: a query would fail, and a signal that is sent as that task
	// continues as new would be lost. Steps wait.
	begun bool
	// activities are those of the current run without a result
	activities []workflow.Future
	// waits says that a step of the current run is due and waits.
	waits bool
}

type step struct {
	at   time.Duration // since Begin
	do   func()
	done bool
	// optional steps may be left over when the workflow completes.
	optional bool
}

// NewScript makes an empty script.
func NewScript() *Script { return &Script{Begin: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

// At adds a step at a time since Begin. RequireDone fails if it has not run.
func (s *Script) At(at time.Duration, do func()) { s.add(&step{at: at, do: do}) }

// Last is the time of the last step.
func (s *Script) Last() (at time.Duration) {
	for _, st := range s.steps {
		at = max(at, st.at)
	}
	return at
}

// In adds an optional step after a while: what a fake does in the background may be pending when the workflow
// completes.
func (s *Script) In(d time.Duration, do func()) { s.Perhaps(s.Elapsed()+d, do) }

// Perhaps adds an optional step at a time since Begin.
func (s *Script) Perhaps(at time.Duration, do func()) { s.add(&step{at: at, do: do, optional: true}) }

// add gives each step a moment of its own: the environment loses what is sent to a run in the moment in which that run
// continues as new. A server does not.
func (s *Script) add(st *step) {
	st.at += time.Duration(len(s.steps))
	s.steps = append(s.steps, st)
	if s.env != nil {
		s.schedule(st)
	}
}

// Elapsed is the time since Begin.
func (s *Script) Elapsed() time.Duration { return s.env.Now().Sub(s.Begin) }

// StartRun schedules the steps that are left in the environment of the next run.
func (s *Script) StartRun(env *testsuite.TestWorkflowEnvironment) {
	s.env, s.begun, s.activities, s.waits = env, false, nil, false
	for _, st := range s.steps {
		if !st.done {
			s.schedule(st)
		}
	}
}

// EndRun ends the current run: steps that are added from now on belong to the next one.
func (s *Script) EndRun() { s.env = nil }

func (s *Script) schedule(st *step) {
	s.env.RegisterDelayedCallback(func() {
		if !s.waits {
			s.next(0, false)
		}
	}, max(time.Millisecond+st.at%time.Microsecond, st.at-s.Elapsed()))
}

// next runs the earliest step if it is due, or has it wait: steps keep their order. It has waited for an activity
// already if waited is not zero; skipped says that the environment skipped that time.
func (s *Script) next(waited time.Duration, skipped bool) {
	st := s.due()
	switch {
	case st == nil:
	case !s.begun:
		s.nextIn(time.Millisecond, st, false)
	// While an activity runs, the environment's clock follows the real one, so that on a busy machine a step may come
	// before the result of an activity that takes no time by the script. It skips time while activities wait for a mock
	// or their next attempts.
	case !skipped && s.waitsForActivity():
		// longer each time: a busy machine may take more than a millisecond to skip one
		s.nextIn(max(time.Millisecond, 2*waited), st, true)
	default:
		st.done = true
		st.do()
		if s.env == nil {
			return
		}
		if st = s.due(); st != nil {
			s.nextIn(time.Millisecond, st, false)
		}
	}
}

// nextIn calls next after a while, which for an activity counts as waited. Steps that become due before wait, too.
func (s *Script) nextIn(after time.Duration, st *step, forActivity bool) {
	s.waits = true
	began := time.Now()
	s.env.RegisterDelayedCallback(func() {
		s.waits = false
		if forActivity {
			s.next(after, time.Since(began) < after)
		} else {
			s.next(0, false)
		}
	}, after+st.at%time.Microsecond)
}

// due is the earliest step that is not done; nil if its time has not come.
func (s *Script) due() (earliest *step) {
	for _, st := range s.steps {
		if !st.done && st.at <= s.Elapsed() && (earliest == nil || st.at < earliest.at) {
			earliest = st
		}
	}
	return earliest
}

func (s *Script) waitsForActivity() bool {
	s.activities = slices.DeleteFunc(s.activities, workflow.Future.IsReady)
	return len(s.activities) > 0
}

// NewEnvironment is NewEnvironment for a run: steps wait for its workflow and for running activities.
func (s *Script) NewEnvironment(suite *testsuite.WorkflowTestSuite) *testsuite.TestWorkflowEnvironment {
	return NewEnvironment(suite,
		worker.Options{Interceptors: []interceptor.WorkerInterceptor{&activityInterceptor{script: s}}})
}

type activityInterceptor struct {
	interceptor.WorkerInterceptorBase
	script *Script
}

func (i *activityInterceptor) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &inbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, i.script}
}

type inbound struct {
	interceptor.WorkflowInboundInterceptorBase
	script *Script
}

func (i *inbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	i.script.begun = true
	return i.Next.ExecuteWorkflow(ctx, in)
}

func (i *inbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	if i.script.Outbound != nil {
		next = i.script.Outbound(next)
	}
	return i.Next.Init(&outbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}, i.script})
}

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	script *Script
}

func (o *outbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	if o.script.Scheduled != nil {
		o.script.Scheduled(name, workflow.GetActivityOptions(ctx))
	}
	result := o.Next.ExecuteActivity(ctx, name, args...)
	o.script.activities = append(o.script.activities, result)
	return result
}

func (o *outbound) SignalExternalWorkflow(ctx workflow.Context, workflowID, runID, name string,
	message any) workflow.Future {
	if o.script.Sent != nil {
		o.script.Sent(name, message)
	}
	return o.Next.SignalExternalWorkflow(ctx, workflowID, runID, name, message)
}

// OverdueAt makes the history of the current run as long as the server suggests, and twice as long a moment later, by
// signals that the workflow does not know.
func (s *Script) OverdueAt(at time.Duration) {
	s.At(at, func() {
		s.env.SetContinueAsNewSuggested(true)
		s.env.SetCurrentHistoryLength(4096)
		s.env.SignalWorkflow("noise", nil)
	})
	s.At(at+time.Millisecond, func() {
		s.env.SetCurrentHistoryLength(2 * 4096)
		s.env.SignalWorkflow("noise", nil)
	})
}

// RequireDone fails the test if a step of At has not run: an assertion in it has asserted nothing.
func (s *Script) RequireDone(t *testing.T) {
	t.Helper()
	for _, st := range s.steps {
		require.True(t, st.done || st.optional, "the workflow completed before the step at %s", st.at)
	}
}

// Update sends an update. Its result is set after the current step has returned and the workflow has run.
func (s *Script) Update(name string, request any) *UpdateResult {
	result := &UpdateResult{}
	s.env.UpdateWorkflow(name, "", result, request)
	return result
}

// UpdateAt is Update at a time.
func (s *Script) UpdateAt(at time.Duration, name string, request any) *UpdateResult {
	result := &UpdateResult{}
	s.At(at, func() { s.env.UpdateWorkflow(name, "", result, request) })
	return result
}

// Query returns the current run's answer to a query.
func Query[T any](t *testing.T, s *Script, name string) (answer T) {
	t.Helper()
	value, err := s.env.QueryWorkflow(name)
	require.NoError(t, err)
	require.NoError(t, value.Get(&answer))
	return answer
}

// UpdateResult is the result of an update.
type UpdateResult struct {
	Rejected error // by the validator
	Err      error
	Value    any
}

// Accept implements the environment's update callbacks.
func (*UpdateResult) Accept() {}

// Reject implements the environment's update callbacks.
func (r *UpdateResult) Reject(err error) { r.Rejected = err }

// Complete implements the environment's update callbacks.
func (r *UpdateResult) Complete(value any, err error) { r.Value, r.Err = value, err }

// RequireCode requires that err has a code.
func RequireCode(t *testing.T, err error, code api.Code) *temporal.ApplicationError {
	t.Helper()
	var coded *temporal.ApplicationError
	require.ErrorAs(t, err, &coded)
	require.Equal(t, string(code), coded.Type(), "%v", err)
	return coded
}
