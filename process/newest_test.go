package process

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/spec"
)

func TestWorkersThatNobodyRunsAnyMoreAreForgotten(t *testing.T) {
	s := open(t)
	begin(t, s, runs("sleep", "1000"))
	ended := &Process{name: key{"p/1", 7}, spec: &spec.Spec{}, plan: &plan{}, logs: &logs.Output{}}
	ended.kind = program{ended}
	s.recordExit(ended)
	require.EqualValues(t, 1, s.Newest("p/0"), "it has a process")
	require.EqualValues(t, 7, s.Newest("p/1"), "its exit is known")
	require.ErrorIs(t, errorOf(s.Start(t.Context(), launch("p/1", 6, runs("sleep", "1000")))), ErrSuperseded)
	for i := range maxExits {
		other := &Process{name: key{fmt.Sprint("job-", i, "/0"), 1}, spec: &spec.Spec{}, plan: &plan{}, logs: &logs.Output{}}
		s.recordExit(other)
	}
	require.EqualValues(t, 1, s.Newest("p/0"))
	require.Zero(t, s.Newest("p/1"), "so many have ended since")
	_, found := s.Get("p/1", 7)
	require.False(t, found)
	require.Len(t, s.ended, maxExits)
	require.Len(t, s.endOrder, maxExits)
}

func TestStartLimitsOfPoolsWithoutStartsAreForgotten(t *testing.T) {
	s := open(t)
	limitOf := func(pool string) *semaphore.Weighted {
		sp := spec.Spec{}
		sp.Pool.Name, sp.Start.Concurrency = pool, 2
		return s.startLimitFor(Launch{Spec: sp})
	}
	busy := limitOf("busy")
	require.NoError(t, busy.Acquire(t.Context(), 1))
	for i := range 3 * maxStartLimits {
		limitOf(fmt.Sprint("job-", i))
		require.LessOrEqual(t, len(s.poolStartLimits), maxStartLimits)
	}
	require.Same(t, busy, limitOf("busy"))
}
