package dispatch

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQueueOrdersByPriorityThenArrival(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		q := &queue{}
		var model []*waiter // in the order of arrival
		for range 200 {
			switch n := random.IntN(10); {
			case n < 5:
				w := newWaiter(nil, nil, &Target{priority: random.IntN(MaxPriority + 1)})
				q.Push(w)
				model = append(model, w)
			case n < 8:
				got := q.Peek()
				if len(model) == 0 {
					require.Nil(t, got)
					continue
				}
				require.True(t, q.Remove(got))
				want := 0
				for i, w := range model {
					if w.priority > model[want].priority {
						want = i
					}
				}
				require.Same(t, model[want], got)
				require.False(t, q.Remove(got), "it was removed before")
				model = slices.Delete(model, want, want+1)
			case len(model) > 0:
				i := random.IntN(len(model))
				require.True(t, q.Remove(model[i]))
				require.False(t, q.Remove(model[i]))
				model = slices.Delete(model, i, i+1)
			}
			require.Equal(t, len(model), q.Len())
			require.Equal(t, len(model) == 0, q.Peek() == nil)
		}
	}
}

func TestCallsOfOneWorkerWaitBesideTheOthers(t *testing.T) {
	q := &queue{}
	push := func(worker string, priority int) *waiter {
		w := newWaiter(nil, nil, &Target{worker: worker, priority: priority})
		q.Push(w)
		return w
	}
	first, bound, urgent, other, last := push("", 0), push("p/0", 0), push("p/0", 9), push("p/1", 0), push("", 0)
	require.Equal(t, 5, q.Len())
	require.Len(t, slices.Collect(q.All()), 5)
	require.Same(t, first, q.Peek())
	require.Same(t, urgent, q.PeekFor("p/0"))
	require.Same(t, other, q.PeekFor("p/1"))
	require.Nil(t, q.PeekFor("p/2"))
	require.True(t, first.before(bound) && bound.before(other) && urgent.before(first))
	for _, w := range []*waiter{urgent, first, bound, other, last} {
		require.True(t, q.Remove(w))
		require.False(t, q.Remove(w), "it was removed before")
	}
	require.Zero(t, q.Len())
	require.Empty(t, q.byWorker)
}
