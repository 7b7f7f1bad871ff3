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

	"github.com/tempool/tempool/api"
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

// cast are the workflows that a history is replayed against, by their types.
type cast map[string]any

// shipped are the workflows as they are.
var shipped = cast{
	api.WorkflowPool: workflows.Pool, api.WorkflowWorker: workflows.Worker, api.WorkflowMigrateSession: workflows.MigrateSession,
	api.WorkflowEvacuateWorker: workflows.EvacuateWorker, api.WorkflowRebalanceSessions: workflows.RebalanceSessions,
}

// replay replays one history.
func replay(t *testing.T, file string, types cast) error {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{})
	require.NoError(t, err)
	for name, run := range types {
		replayer.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: name})
	}
	return replayer.ReplayWorkflowHistoryFromJSONFile(silent{}, file)
}

func TestEveryRecordedHistoryReplays(t *testing.T) {
	t.Parallel()
	for _, file := range histories(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, replay(t, file, shipped))
		})
	}
}

// TestAnIncompatibleChangeIsNoticed replays the same corpus against workflows that do one thing more than they did, as a careless
// change would. It is what makes the test above worth something.
func TestAnIncompatibleChangeIsNoticed(t *testing.T) {
	t.Parallel()
	careless := cast{
		api.WorkflowPool: func(ctx workflow.Context, run workflows.PoolRun) error {
			return workflows.Pool(carelessly(ctx), run)
		},
		api.WorkflowWorker: func(ctx workflow.Context, run workflows.WorkerRun) error {
			return workflows.Worker(carelessly(ctx), run)
		},
		api.WorkflowMigrateSession: func(ctx workflow.Context, in api.MigrateSessionRequest) (api.SessionMoves, error) {
			return workflows.MigrateSession(carelessly(ctx), in)
		},
		api.WorkflowEvacuateWorker: func(ctx workflow.Context, run workflows.EvacuateRun) (api.SessionMoves, error) {
			return workflows.EvacuateWorker(carelessly(ctx), run)
		},
		api.WorkflowRebalanceSessions: func(ctx workflow.Context, run workflows.RebalanceRun) (api.SessionMoves, error) {
			return workflows.RebalanceSessions(carelessly(ctx), run)
		},
	}
	for _, file := range histories(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			if !strings.Contains(string(content), "EVENT_TYPE_WORKFLOW_TASK_COMPLETED") {
				return // ended before its first task: there is nothing to disagree with
			}
			require.Error(t, replay(t, file, careless))
		})
	}
}

// carelessly does one thing more.
func carelessly(ctx workflow.Context) workflow.Context {
	workflow.NewTimer(ctx, time.Second)
	return ctx
}
