package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
)

func TestAJanitorKillsOnlyIncarnationsThatTheirWorkerDoesNotAnswerFor(t *testing.T) {
	state := tempool.WorkerState{Incarnation: 7, Successor: 9, Leaving: []int64{5}}
	for incarnation, killed := range map[int64]bool{4: true, 5: false, 6: true, 7: false, 8: true, 9: false, 10: true} {
		require.Equal(t, killed, superfluous(state, incarnation), "incarnation %d", incarnation)
	}
}
