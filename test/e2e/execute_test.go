package e2e

import (
	"encoding/json"
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

// somebodysQueue is where the workflows of these tests run: those of a user of Tempool, not of Tempool.
const somebodysQueue = "somebody"

// call is what a user's workflow gets: the pool, and the input of Execute as it is to be sent.
type call struct {
	Pool    string         `json:"pool"`
	Request map[string]any `json:"request"`
	// Silence is the activity's heartbeat timeout.
	Silence time.Duration `json:"silence"`
}

// callPool is a workflow as a user writes it.
func callPool(ctx workflow.Context, c call) (answer converter.RawValue, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: api.PoolQueue(c.Pool), StartToCloseTimeout: time.Minute, HeartbeatTimeout: c.Silence, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumInterval: time.Second},
	})
	err = workflow.ExecuteActivity(ctx, api.ActivityExecute, c.Request).Get(ctx, &answer)
	return answer, err
}

// somebody runs the user's workflows.
func (w *world) somebody() {
	w.t.Helper()
	user := sdkworker.New(w.client.Temporal(), somebodysQueue, sdkworker.Options{})
	user.RegisterWorkflowWithOptions(callPool, workflow.RegisterOptions{Name: "callPool"})
	require.NoError(w.t, user.Start())
	w.t.Cleanup(user.Stop)
}

func (w *world) calls(id string, c call) client.WorkflowRun {
	w.t.Helper()
	run, err := w.client.Temporal().ExecuteWorkflow(w.t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: somebodysQueue}, "callPool", c)
	require.NoError(w.t, err)
	return run
}

// troubled starts a pool of trouble.py and returns where its workers write what they do.
func (w *world) troubled(name string, size int) (pool *tempool.Pool, notes string) {
	w.t.Helper()
	notes = filepath.Join(w.dir, name+".notes")
	s := python(name, size, "trouble.py")
	s.Pool.Env["NOTES"] = notes
	return w.start(s), notes
}

// noted counts the lines of the notes that begin with a prefix.
func noted(notes, prefix string) int {
	content, _ := os.ReadFile(notes)
	n := 0
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func awaitNote(t *testing.T, notes, prefix string) {
	t.Helper()
	require.Eventually(t, func() bool { return noted(notes, prefix) > 0 }, patience, 10*time.Millisecond, "no worker noted %q", prefix)
}

// failureOf takes the failure of Execute out of what wraps it.
func failureOf(t *testing.T, err error) (*temporal.ApplicationError, api.ExecuteFailure) {
	t.Helper()
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	var detail api.ExecuteFailure
	require.NoError(t, failure.Details(&detail))
	return failure, detail
}

func TestAWorkflowCallsAPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("called")
	w.somebody()
	pool, notes := w.troubled("called", 1)

	t.Run("and gets what the worker answers", func(t *testing.T) {
		run := w.calls("sum", call{Pool: "called", Request: map[string]any{"method": "add", "params": map[string]any{"a": 2, "b": 3}}})
		var answer struct{ Sum int }
		require.NoError(t, run.Get(t.Context(), &answer))
		require.Equal(t, 5, answer.Sum)

		run = w.calls("bytes", call{Pool: "called", Request: map[string]any{"method": "noise"}})
		var noise []byte
		require.NoError(t, run.Get(t.Context(), &noise), "an answer that is no JSON comes as bytes")
		require.Len(t, noise, 256)
	})

	t.Run("and a worker's error is its own, and not tried again", func(t *testing.T) {
		run := w.calls("failing", call{Pool: "called", Request: map[string]any{"method": "fail", "params": []any{"because"}}})
		failure, detail := failureOf(t, run.Get(t.Context(), nil))
		require.Equal(t, string(api.CodeWorkerError), failure.Type())
		require.True(t, failure.NonRetryable())
		require.True(t, detail.Started)
		var told struct{ Type, Message string }
		require.NoError(t, json.Unmarshal(detail.WorkerError, &told))
		require.Equal(t, "ValueError", told.Type)
		require.Equal(t, "because", told.Message)
	})

	t.Run("and what cannot be a call is refused for good", func(t *testing.T) {
		for id, request := range map[string]map[string]any{
			"no-method": {"params": 1}, "misspelled": {"method": "add", "parameters": 1}, "negative": {"method": "add", "timeout_ms": -1},
		} {
			failure, _ := failureOf(t, w.calls(id, call{Pool: "called", Request: request}).Get(t.Context(), nil))
			require.Equal(t, string(api.CodeInvalid), failure.Type(), id)
			require.True(t, failure.NonRetryable(), id)
		}
	})

	t.Run("and a call's own time is kept", func(t *testing.T) {
		run := w.calls("late", call{Pool: "called", Request: map[string]any{"method": "nap", "params": []any{30, "late"}, "timeout_ms": 300}})
		failure, detail := failureOf(t, run.Get(t.Context(), nil))
		require.Equal(t, string(api.CodeDeadlineExceeded), failure.Type())
		require.True(t, detail.Started)
		awaitNote(t, notes, "cancel late")
	})

	t.Run("and a crash in mid-call is told", func(t *testing.T) {
		failure, detail := failureOf(t, w.calls("fatal", call{Pool: "called", Request: map[string]any{"method": "die"}}).Get(t.Context(), nil))
		require.Equal(t, string(api.CodeWorkerCrashed), failure.Type())
		require.True(t, failure.NonRetryable())
		require.True(t, detail.Started)
		w.ready(pool, 1)
	})

	t.Run("and its cancellation reaches the worker", func(t *testing.T) {
		run := w.calls("given-up", call{Pool: "called", Request: map[string]any{"method": "nap", "params": []any{50, "given-up"}}, Silence: 10 * time.Second})
		awaitNote(t, notes, "begin given-up")
		require.NoError(t, w.client.Temporal().CancelWorkflow(t.Context(), run.GetID(), ""))
		var cancelled *temporal.CanceledError
		require.ErrorAs(t, run.Get(t.Context(), nil), &cancelled)
		awaitNote(t, notes, "cancel given-up")
		var name string
		require.NoError(t, w.calls("next", call{Pool: "called", Request: map[string]any{"method": "nap", "params": []any{0, "next"}}}).Get(t.Context(), &name))
		require.Equal(t, "next", name)
	})

	t.Run("from the command line", func(t *testing.T) {
		temporalCLI, err := devserver.Binary(t.Context(), "", func(string) {})
		require.NoError(t, err)
		output, err := exec.CommandContext(t.Context(), temporalCLI, "workflow", "execute", "--address", w.server.Address(), "--output", "json",
			"--task-queue", api.TaskQueue, "--type", api.WorkflowExecute, "--input", `{"pool": "called", "method": "add", "params": [20, 22]}`).CombinedOutput()
		require.NoError(t, err, "%s", output)
		var told struct{ Result struct{ Sum int } }
		require.NoError(t, json.Unmarshal(output, &told), "%s", output)
		require.Equal(t, 42, told.Result.Sum)

		output, err = exec.CommandContext(t.Context(), temporalCLI, "workflow", "execute", "--address", w.server.Address(),
			"--task-queue", api.TaskQueue, "--type", api.WorkflowExecute, "--input", `{"pool": "called", "method": "fail", "params": ["for shell"]}`).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(output), "for shell")
	})
}

func TestMoreCallsThanWorkersWaitInTemporal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("few")
	w.somebody()
	pool, notes := w.troubled("few", 2)
	const calls = 16
	var runs []client.WorkflowRun
	for i := range calls {
		runs = append(runs, w.calls(fmt.Sprintf("nap-%d", i), call{Pool: "few", Request: map[string]any{"method": "nap", "params": []any{0.25, fmt.Sprint(i)}}}))
	}
	most := 0
	for noted(notes, "end") < calls/2 {
		atAgent := 0
		for _, run := range runs {
			described, err := w.client.Temporal().DescribeWorkflowExecution(t.Context(), run.GetID(), "")
			require.NoError(t, err)
			for _, pending := range described.GetPendingActivities() {
				if pending.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED {
					atAgent++
				}
			}
		}
		// The runs are described one after another, while one call ends and the next is taken.
		most = max(most, atAgent)
	}
	t.Logf("at most %d calls were at the agent", most)
	require.LessOrEqual(t, most, 6, "the agent takes no call from Temporal that it has no worker for")
	for i, run := range runs {
		var name string
		require.NoError(t, run.Get(t.Context(), &name))
		require.Equal(t, fmt.Sprint(i), name)
	}
	require.Equal(t, calls, noted(notes, "begin"), "each ran once")
	w.until(pool, "every call is counted", func(v api.PoolWorkers) bool {
		return v.Workers[0].RequestsServed+v.Workers[1].RequestsServed == calls &&
			v.Workers[0].State == lifecycle.Ready && v.Workers[1].State == lifecycle.Ready
	})
}

func TestAnAgentThatDiesInMidCallLeavesTheCallToBeToldOrMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doomed := w.agent("doomed-caller")
	w.somebody()
	pool, notes := w.troubled("fragile", 2)
	once := w.calls("once", call{Pool: "fragile", Silence: 3 * time.Second, Request: map[string]any{"method": "nap", "params": []any{20, "once"}}})
	again := w.calls("again", call{Pool: "fragile", Silence: 3 * time.Second, Request: map[string]any{"method": "nap", "params": []any{4, "again"}, "idempotent": true}})
	awaitNote(t, notes, "begin once")
	awaitNote(t, notes, "begin again")
	w.agent("successor")
	doomed.kill()

	failure, detail := failureOf(t, once.Get(t.Context(), nil))
	require.Equal(t, string(api.CodeWorkerCrashed), failure.Type())
	require.True(t, detail.Started)
	require.Contains(t, failure.Message(), "doomed-caller")
	var name string
	require.NoError(t, again.Get(t.Context(), &name))
	require.Equal(t, "again", name)
	require.Equal(t, 1, noted(notes, "begin once"))
	require.GreaterOrEqual(t, noted(notes, "begin again"), 2)
	w.ready(pool, 2)
}
