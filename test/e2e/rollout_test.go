package e2e

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// A rollout to hosts with room for two of three workers ends, says which worker has no room, and that one follows when
// there is room.
func TestARolloutPassesOverTheWorkerForWhichNoHostHasRoom(t *testing.T) {
	env := oneHost(t, "before", "--capacity", "3")
	env.startAgent("after", "--labels", "next", "--capacity", "2")
	s := echoSpec("moved", 3)
	s.Rotation.Surge = false
	pool := env.startPool(s)
	s.Pool.Placement = "next"
	_, err := pool.Apply(t.Context(), s)
	require.NoError(t, err)
	isPending := func(w api.Worker) bool { return w.State == lifecycle.Pending }
	view := env.waitFor(pool, "two have moved, and the rollout does not wait for the third", func(v api.PoolWorkers) bool {
		return v.Rollout == nil && v.Ready == 2 && v.Workers[0].SpecVersion == 2 && v.Workers[1].SpecVersion == 2 &&
			v.Workers[2].SpecVersion == 2 &&
			slices.ContainsFunc(v.Workers, isPending) // between two attempts it is starting
	})
	waiting := 0
	for _, w := range view.Workers {
		if isPending(w) {
			require.Contains(t, w.Reason, "tempool/place/next", "the reason says what it waits for")
			waiting++
			continue
		}
		require.Equal(t, "after", w.Host)
	}
	require.Equal(t, 1, waiting)
	env.startAgent("room", "--labels", "next", "--capacity", "1")
	env.waitReady(pool, s.Pool.Size)
}
