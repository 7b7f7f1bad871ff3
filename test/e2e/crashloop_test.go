package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// TestAPoolWhoseProgramCannotStartGivesUpAndWritesLittleHistory has the default recovery but for waits of a second at most,
// and holds all that was written, from the beginnings of pool and worker on, against how long the default waits would have lasted.
func TestAPoolWhoseProgramCannotStartGivesUpAndWritesLittleHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("hopeless")
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command = "hopeless", 1, []string{"false"}
	s.Recovery.BackoffMax = spec.Duration(time.Second)
	require.Equal(t, 10, s.Recovery.MaxConsecutiveFailures)
	require.NoError(t, w.client.StartPool(t.Context(), tempool.PoolStart{Pool: "hopeless", Spec: s}))
	pool := w.client.Pool("hopeless")
	w.until(pool, "the worker has given up", func(v tempool.PoolView) bool {
		return len(v.Workers) == 1 && v.Workers[0].State == lifecycle.Failed
	})

	count := func(id string) (all int, by map[string]int, starts []time.Time) {
		by = map[string]int{}
		events := w.client.Temporal().GetWorkflowHistory(t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(t, err)
			all++
			by[event.GetEventType().String()]++
			if event.GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
				starts = append(starts, event.GetEventTime().AsTime())
			}
		}
		return all, by, starts
	}
	worker, ofWorker, starts := count(tempool.WorkerWorkflowID("hopeless", 0))
	pools, ofPool, _ := count(tempool.PoolWorkflowID("hopeless"))
	t.Logf("worker: %d events %v", worker, ofWorker)
	t.Logf("pool: %d events %v", pools, ofPool)

	require.Len(t, starts, 10, "one start a failure, and none after the tenth")
	wait := s.Recovery.BackoffInitial.D()
	for i := 2; i < len(starts); i++ { // the first restart is at once
		require.GreaterOrEqual(t, starts[i].Sub(starts[i-1]), wait*9/10, "before start %d", i+1)
		wait = min(time.Duration(float64(wait)*s.Recovery.BackoffMultiplier), s.Recovery.BackoffMax.D())
	}

	lasts, next := time.Duration(0), spec.Default().Recovery
	for wait, failure := next.BackoffInitial.D(), 2; failure < next.MaxConsecutiveFailures; failure++ {
		lasts += wait
		wait = min(time.Duration(float64(wait)*next.BackoffMultiplier), next.BackoffMax.D())
	}
	require.Less(t, float64(worker+pools), lasts.Seconds(), "one event a second")

	entry, err := pool.Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 10, entry.Workers[0].Incarnation, "the pool knows how it has ended")
	require.EqualValues(t, 10, entry.Workers[0].StartsFailed)
	require.True(t, entry.Workers[0].Resting)
}
