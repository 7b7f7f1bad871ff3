// Package replay holds that workflows which began under an earlier version of Tempool go on under this one: it replays recorded
// histories of real runs, those of every version that was shipped.
package replay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/workflows"
)

// silent drops what the replayer says; its errors say it, too.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

func histories(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.json"))
	require.NoError(t, err)
	require.Greater(t, len(files), 20, "the corpus is missing; make replay-record writes it")
	return files
}

// replay replays one history against the given workflows.
func replay(t *testing.T, file string, pool, slot any) error {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(pool, workflow.RegisterOptions{Name: tempool.WorkflowPool})
	replayer.RegisterWorkflowWithOptions(slot, workflow.RegisterOptions{Name: tempool.WorkflowWorker})
	return replayer.ReplayWorkflowHistoryFromJSONFile(silent{}, file)
}

func TestEveryRecordedHistoryReplays(t *testing.T) {
	t.Parallel()
	for _, file := range histories(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, replay(t, file, workflows.Pool, workflows.Worker))
		})
	}
}

// TestAnIncompatibleChangeIsNoticed replays the same corpus against workflows that do one thing more than they did, as a careless
// change would. It is what makes the test above worth something.
func TestAnIncompatibleChangeIsNoticed(t *testing.T) {
	t.Parallel()
	carelessPool := func(ctx workflow.Context, run workflows.PoolRun) error {
		workflow.NewTimer(ctx, time.Second)
		return workflows.Pool(ctx, run)
	}
	carelessWorker := func(ctx workflow.Context, run workflows.WorkerRun) error {
		workflow.NewTimer(ctx, time.Second)
		return workflows.Worker(ctx, run)
	}
	for _, file := range histories(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			if !strings.Contains(string(content), "EVENT_TYPE_WORKFLOW_TASK_COMPLETED") {
				return // ended before its first task: there is nothing to disagree with
			}
			require.Error(t, replay(t, file, carelessPool, carelessWorker))
		})
	}
}
