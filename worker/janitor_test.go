package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestOnlyIncarnationsThatTheirWorkerDoesNotManageAreStale(t *testing.T) {
	state := api.WorkerState{Incarnation: 7, Successor: 9, Draining: []int64{5}}
	for incarnation, killed := range map[int64]bool{4: true, 5: false, 6: true, 7: false, 8: true, 9: false, 10: true} {
		require.Equal(t, killed, isStale(state, incarnation), "incarnation %d", incarnation)
	}
	state.State = lifecycle.Starting
	for incarnation, killed := range map[int64]bool{6: true, 7: false, 8: false, 15: false} {
		require.Equal(t, killed, isStale(state, incarnation), "incarnation %d, a later try of the same start from 8 on", incarnation)
	}
}
