package process

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

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

func TestStartsInProgressOfAPoolShareItsLimit(t *testing.T) {
	s := open(t)
	enter := func(worker string, limit startLimit) *start {
		st := &start{done: make(chan struct{}), limit: limit}
		require.NoError(t, s.enter(key{worker, 1}, st))
		return st
	}
	first := enter("p/0", startLimit{"p", 2})
	require.Same(t, first.turns, enter("p/1", startLimit{"p", 2}).turns)
	for i, other := range []startLimit{{"p", 3}, {"q", 2}, {size: 2}} {
		worker := fmt.Sprint("other/", i)
		require.NotSame(t, first.turns, enter(worker, other).turns)
		s.leave(key{worker, 1})
	}
	s.leave(key{"p/0", 1})
	require.Same(t, first.turns, enter("p/2", startLimit{"p", 2}).turns, "p/1 is still starting")
	s.leave(key{"p/1", 1})
	s.leave(key{"p/2", 1})
	require.Empty(t, s.starting)
}
