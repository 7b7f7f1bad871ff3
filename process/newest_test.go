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
	s.mu.Lock()
	s.noteNewestLocked("p/1", 7)
	most := 0
	for i := range 5 * maxOthers {
		s.noteNewestLocked(fmt.Sprint("job-", i, "/0"), 1)
		most = max(most, len(s.newest))
	}
	s.mu.Unlock()
	require.LessOrEqual(t, most, maxOthers+1)
	require.EqualValues(t, 1, s.Newest("p/0"), "it has a process")
	require.EqualValues(t, 7, s.Newest("p/1"), "its exit is known")
	require.Zero(t, s.Newest("job-0/0"))
	require.EqualValues(t, 1, s.Newest(fmt.Sprint("job-", 5*maxOthers-1, "/0")))
	require.ErrorIs(t, errorOf(s.Start(t.Context(), launch("p/1", 6, runs("sleep", "1000")))), ErrSuperseded)
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
