package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

func TestOnlyIncarnationsThatTheirWorkerDoesNotManageAreStale(t *testing.T) {
	state := api.WorkerState{Incarnation: 7, Successor: 9, Draining: []int64{5}}
	for incarnation, killed := range map[int64]bool{4: true, 5: false, 6: true, 7: false, 8: true, 9: false, 10: true} {
		require.Equal(t, killed, isStale(state, incarnation), "incarnation %d", incarnation)
	}
}

func TestAPoolVouchesForTheIncarnationsOfItsRoster(t *testing.T) {
	record := poolRecord{0: 7, 1: 0}
	require.True(t, record.names(0, 7))
	for slot, incarnation := range map[int]int64{0: 6, 1: 1, 2: 7} {
		require.False(t, record.names(slot, incarnation), "slot %d: its worker is asked", slot)
	}
	require.False(t, poolRecord(nil).names(0, 0), "the pool did not answer")
}

func TestASweepLooksAtWhatItMustAndAtTheOthersByTurns(t *testing.T) {
	record := poolRecord{}
	var all []resident
	for slot := range 3 * janitorTurns {
		record[slot] = 1
		all = append(all, resident{new(process.Process), "many", slot, 1})
	}
	pools, inspections := map[string]poolRecord{"many": record}, map[*process.Process]inspection{}
	now := time.Now()
	sweep := func() (slots []int) {
		for _, r := range due(all, pools, inspections) {
			slots = append(slots, r.slot)
			inspections[r.process] = inspection{at: now}
		}
		now = now.Add(janitorInterval)
		return slots
	}
	require.Len(t, sweep(), len(all), "all are new")
	inspected := map[int]bool{}
	for range 3 {
		slots := sweep()
		require.Len(t, slots, janitorTurns)
		for _, slot := range slots {
			inspected[slot] = true
		}
	}
	require.Len(t, inspected, len(all), "each has had its turn")

	record[40] = 2
	delete(record, 30)
	slots := sweep()
	require.Equal(t, []int{30, 40}, slots[:2])
	require.Len(t, slots, 2+janitorTurns)
	require.NotContains(t, slots[2:], 30)

	pools["many"] = nil
	require.Len(t, sweep(), len(all), "the pool did not answer")
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
		temporal.On("DescribeWorkflowExecution", mock.Anything, "id",
			"").Return(&workflowservice.DescribeWorkflowExecutionResponse{
			WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Status: status},
		}, nil)
		_, isClosed := (&janitor{temporal: temporal}).describe(t.Context(), "id")
		require.Equal(t, closed, isClosed, status)
	}
}
