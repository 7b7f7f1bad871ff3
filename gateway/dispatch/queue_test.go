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
				got := q.Pop()
				if len(model) == 0 {
					require.Nil(t, got)
					continue
				}
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
