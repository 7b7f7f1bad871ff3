package worker

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/spec"
)

func TestOnlyIncarnationsThatTheirWorkerDoesNotManageAreStale(t *testing.T) {
	state := api.WorkerState{Incarnation: 7, Successor: 9, Draining: []int64{5}}
	for incarnation, killed := range map[int64]bool{4: true, 5: false, 6: true, 7: false, 8: true, 9: false, 10: true} {
		require.Equal(t, killed, isStale(state, incarnation), "incarnation %d", incarnation)
	}
}

func TestAPoolVouchesForTheIncarnationsOfItsRoster(t *testing.T) {
	pool := api.PoolStatus{Workers: []api.RosterEntry{{Slot: 0, Incarnation: 7}, {Slot: 1},
		{Slot: 3, Incarnation: 7, Gone: true}}}
	require.True(t, names(pool, 0, 7))
	for slot, incarnation := range map[int]int64{0: 6, 1: 1, 2: 7, 3: 7} {
		require.False(t, names(pool, slot, incarnation), "slot %d: its worker is asked", slot)
	}
	require.False(t, names(api.PoolStatus{}, 0, 0), "the pool did not answer")
}

// fixedControl has one pool, and the states of its workers.
type fixedControl struct {
	lease.Control // panics if another method is called
	roster        []api.RosterEntry
	states        map[string]api.WorkerState
}

func (c fixedControl) Status(context.Context, string) (api.PoolStatus, error) {
	return api.PoolStatus{Workers: c.roster}, nil
}

func (c fixedControl) State(_ context.Context, worker string) (api.WorkerState, error) {
	return c.states[worker], nil
}

// describes makes Temporal say once how a workflow is.
func describes(temporal *mocks.Client, id string, status enums.WorkflowExecutionStatus) {
	temporal.On("DescribeWorkflowExecution", mock.Anything, id,
		"").Return(&workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Status: status},
	}, nil).Once()
}

func TestASweepInspectsTheProcessesThatTheirPoolDoesNotName(t *testing.T) {
	processes := supervisor(t)
	named := start(t, processes, "p/0", func(*spec.Spec) {}, "sleep", "1000")
	closed := start(t, processes, "p/1", func(*spec.Spec) {}, "sleep", "1000")
	stale := start(t, processes, "p/2", func(*spec.Spec) {}, "sleep", "1000")
	draining := start(t, processes, "p/3", func(*spec.Spec) {}, "sleep", "1000")
	temporal := &mocks.Client{}
	describes(temporal, "tempool/p/1", enums.WORKFLOW_EXECUTION_STATUS_TERMINATED)
	describes(temporal, "tempool/p/2", enums.WORKFLOW_EXECUTION_STATUS_RUNNING)
	describes(temporal, "tempool/p/3", enums.WORKFLOW_EXECUTION_STATUS_RUNNING)
	control := fixedControl{
		roster: []api.RosterEntry{{Slot: 0, Incarnation: named.Incarnation()}, {Slot: 1, Gone: true},
			{Slot: 2, Incarnation: 7}, {Slot: 3, Incarnation: 7}},
		states: map[string]api.WorkerState{"p/2": {Incarnation: 7},
			"p/3": {Incarnation: 7, Draining: []int64{draining.Incarnation()}}},
	}
	j := &janitor{temporal: temporal, control: control, processes: processes, log: slog.New(slog.DiscardHandler)}
	j.sweep(t.Context())
	<-closed.Done()
	<-stale.Done()
	require.False(t, named.HasEnded())
	require.False(t, draining.HasEnded())
	temporal.AssertExpectations(t)
}

// What an operator has paused goes on later: its processes stay.
func TestAPausedWorkflowIsNotClosed(t *testing.T) {
	for status, closed := range map[enums.WorkflowExecutionStatus]bool{
		enums.WORKFLOW_EXECUTION_STATUS_RUNNING: false, enums.WORKFLOW_EXECUTION_STATUS_PAUSED: false,
		enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: false,
		enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:        true, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED: true,
		enums.WORKFLOW_EXECUTION_STATUS_FAILED: true,
	} {
		temporal := &mocks.Client{}
		describes(temporal, "id", status)
		require.Equal(t, closed, (&janitor{temporal: temporal}).isClosed(t.Context(), "id"), status)
	}
}
