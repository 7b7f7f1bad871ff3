package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/lifecycle"
)

// userTaskQueue is the task queue of the tests' own workflows, as a user of Tempool has them.
const userTaskQueue = "user"

// executeInput is the input of a user's workflow: the pool, and the input of Execute.
type executeInput struct {
	Pool             string         `json:"pool"`
	Request          map[string]any `json:"request"`
	HeartbeatTimeout time.Duration  `json:"heartbeat_timeout"`
}

// executeWorkflow is a user's workflow that calls a pool.
func executeWorkflow(ctx workflow.Context, c executeInput) (answer converter.RawValue, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: api.PoolQueue(c.Pool), StartToCloseTimeout: 2 * waitTimeout, HeartbeatTimeout: c.HeartbeatTimeout,
		WaitForCancellation: true,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumInterval: time.Second},
	})
	err = workflow.ExecuteActivity(ctx, api.ActivityExecute, c.Request).Get(ctx, &answer)
	return answer, err
}

// startUserWorker starts a Temporal worker for the user's workflows.
func (env *testEnv) startUserWorker() {
	env.t.Helper()
	user := sdkworker.New(env.client.Temporal(), userTaskQueue,
		sdkworker.Options{WorkflowPanicPolicy: sdkworker.FailWorkflow})
	user.RegisterWorkflow(leaseWorkflow)
	user.RegisterWorkflowWithOptions(executeWorkflow, workflow.RegisterOptions{Name: "callPool"})
	require.NoError(env.t, user.Start())
	env.t.Cleanup(user.Stop)
}

func (env *testEnv) startCallWorkflow(id string, c executeInput) client.WorkflowRun {
	env.t.Helper()
	return env.execute(id, userTaskQueue, "callPool", c)
}

// startTroublePool starts a pool of trouble.py and returns the file to which its workers write notes.
func (env *testEnv) startTroublePool(name string, size int) (pool *tempool.Pool, notes string) {
	env.t.Helper()
	s := env.troubleSpec(name, size)
	return env.startPool(s), s.Pool.Env["NOTES"]
}

// countNotes counts the notes that begin with a prefix.
func countNotes(notes, prefix string) int {
	content, _ := os.ReadFile(notes)
	n := 0
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func waitForNote(t *testing.T, notes, prefix string) {
	t.Helper()
	require.Eventually(t, func() bool { return countNotes(notes, prefix) > 0 }, waitTimeout, 10*time.Millisecond,
		"no worker noted %q", prefix)
}

// executeFailure unwraps the failure of Execute.
func executeFailure(t *testing.T, err error) (*temporal.ApplicationError, api.ExecuteFailure) {
	t.Helper()
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	var detail api.ExecuteFailure
	require.NoError(t, failure.Details(&detail))
	return failure, detail
}

func TestExecuteCallsAPool(t *testing.T) {
	env := oneHost(t, "called")
	env.startUserWorker()
	_, notes := env.startTroublePool("called", 1)

	t.Run("returns the answer", func(t *testing.T) {
		run := env.startCallWorkflow("sum",
			executeInput{Pool: "called", Request: map[string]any{"method": "add", "params": map[string]any{"a": 2, "b": 3}}})
		var answer struct{ Sum int }
		require.NoError(t, run.Get(t.Context(), &answer))
		require.Equal(t, 5, answer.Sum)

		run = env.startCallWorkflow("bytes", executeInput{Pool: "called", Request: map[string]any{"method": "noise"}})
		var noise []byte
		require.NoError(t, run.Get(t.Context(), &noise), "an answer that is not JSON is returned as bytes")
		require.Len(t, noise, 256)
	})

	t.Run("passes cancellation on to the worker", func(t *testing.T) {
		run := env.startCallWorkflow("given-up",
			executeInput{Pool: "called", Request: map[string]any{"method": "nap", "params": []any{3600, "given-up"}},
				HeartbeatTimeout: time.Minute})
		waitForNote(t, notes, "begin given-up")
		env.cancel(run.GetID())
		var cancelled *temporal.CanceledError
		require.ErrorAs(t, run.Get(t.Context(), nil), &cancelled)
		waitForNote(t, notes, "cancel given-up")
		var name string
		require.NoError(t, env.startCallWorkflow("next",
			executeInput{Pool: "called", Request: map[string]any{"method": "nap", "params": []any{0, "next"}}}).Get(t.Context(),
			&name))
		require.Equal(t, "next", name)
	})

	t.Run("from the command line", func(t *testing.T) {
		temporalCLI, err := devserver.Binary(t.Context(), nil)
		require.NoError(t, err)
		execute := func(input string) *exec.Cmd {
			return exec.CommandContext(t.Context(), temporalCLI, "workflow", "execute", "--address", env.server.Address(),
				"--namespace", env.server.Namespace(), "--output", "json", "--task-queue", api.TaskQueue,
				"--type", api.WorkflowExecute, "--input", input)
		}
		executed := decode[struct{ Result struct{ Sum int } }](t,
			outputOf(t, execute(`{"pool": "called", "method": "add", "params": [20, 22]}`)))
		require.Equal(t, 42, executed.Result.Sum)
		output, err := execute(`{"pool": "called", "method": "fail", "params": ["for shell"]}`).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(output), "for shell")
	})
}

// More calls than workers wait in Temporal. When an agent dies, only idempotent calls are made again.
func TestExecuteQueuesExcessCallsInTemporalAndRetriesIdempotentOnes(t *testing.T) {
	env := newEnv(t)
	doomed := env.startAgent("doomed-caller")
	env.startUserWorker()
	pool, notes := env.startTroublePool("few", 2)
	const calls = 16
	release := filepath.Join(env.dir, "release") // keeps every call from ending
	var runs []client.WorkflowRun
	for i := range calls {
		runs = append(runs, env.startCallWorkflow(fmt.Sprintf("call-%d", i),
			executeInput{Pool: "few", Request: map[string]any{"method": "wait_for", "params": []any{release, fmt.Sprint(i)}}}))
	}
	states := map[enums.PendingActivityState]int{}
	require.Eventually(t, func() bool {
		clear(states)
		for _, run := range runs {
			described, err := env.client.Temporal().DescribeWorkflowExecution(t.Context(), run.GetID(), "")
			if err != nil {
				return false
			}
			for _, pending := range described.GetPendingActivities() {
				states[pending.GetState()]++
			}
		}
		started, scheduled := states[enums.PENDING_ACTIVITY_STATE_STARTED], states[enums.PENDING_ACTIVITY_STATE_SCHEDULED]
		return started+scheduled == calls && countNotes(notes, "begin") == 2
	}, waitTimeout, 50*time.Millisecond, "both workers serve a call, and all others wait: %v", &states)
	require.LessOrEqual(t, states[enums.PENDING_ACTIVITY_STATE_STARTED], 3,
		"the agent polls only for calls that it has a worker for")
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	for i, run := range runs {
		var name string
		require.NoError(t, run.Get(t.Context(), &name))
		require.Equal(t, fmt.Sprint(i), name)
	}
	require.Equal(t, calls, countNotes(notes, "begin"), "each call ran once")
	env.waitFor(pool, "every call is counted", func(v api.PoolWorkers) bool {
		return v.Workers[0].RequestsServed+v.Workers[1].RequestsServed == calls &&
			v.Workers[0].State == lifecycle.Ready && v.Workers[1].State == lifecycle.Ready
	})

	once := env.startCallWorkflow("once",
		executeInput{Pool: "few", HeartbeatTimeout: 10 * time.Second,
			Request: map[string]any{"method": "nap", "params": []any{3600, "once"}}})
	release = filepath.Join(env.dir, "release again")
	again := env.startCallWorkflow("again",
		executeInput{Pool: "few", HeartbeatTimeout: 10 * time.Second,
			Request: map[string]any{"method": "wait_for", "params": []any{release, "again"}, "idempotent": true}})
	waitForNote(t, notes, "begin once")
	waitForNote(t, notes, "begin again")
	env.startAgent("successor")
	doomed.kill()
	require.NoError(t, os.WriteFile(release, nil, 0o600)) // now the call may end: it did not before

	failure, detail := executeFailure(t, once.Get(t.Context(), nil))
	require.Equal(t, string(api.CodeWorkerCrashed), failure.Type())
	require.True(t, detail.Started)
	require.Contains(t, failure.Message(), "doomed-caller")
	var name string
	require.NoError(t, again.Get(t.Context(), &name))
	require.Equal(t, "again", name)
	require.Equal(t, 1, countNotes(notes, "begin once"))
	require.GreaterOrEqual(t, countNotes(notes, "begin again"), 2)
	env.waitReady(pool, 2)
}
