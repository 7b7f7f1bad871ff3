package pool

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQueueOrdersByPriorityAgeAndArrival(t *testing.T) {
	const timeout = 10 * time.Second // a level is a second
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		q := &queue{}
		var model []*waiter // in the order of arrival
		now := time.Now()
		for range 200 {
			now = now.Add(time.Duration(random.IntN(3)) * time.Second / 2)
			switch n := random.IntN(10); {
			case n < 5:
				w := newWaiter(nil, nil, &Target{priority: random.IntN(MaxPriority + 1)})
				w.queuedAt, w.timeout = now, timeout
				q.Push(w)
				model = append(model, w)
			case n < 8:
				got := q.Peek()
				if len(model) == 0 {
					require.Nil(t, got)
					continue
				}
				require.True(t, q.Remove(got))
				level := func(w *waiter) float64 { return float64(w.priority) + now.Sub(w.queuedAt).Seconds() }
				want := 0
				for i, w := range model {
					if level(w) > level(model[want]) {
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

// Each second two calls of the highest priority come and one call is served.
func TestACallIsNotStarvedByCallsOfAHigherPriority(t *testing.T) {
	const timeout = 30 * time.Second
	q, now := &queue{}, time.Now()
	push := func(priority int) *waiter {
		w := newWaiter(nil, nil, &Target{priority: priority})
		w.queuedAt, w.timeout = now, timeout
		q.Push(w)
		return w
	}
	low := push(MinPriority)
	for second := 0; ; second++ {
		push(MaxPriority)
		push(MaxPriority)
		served := q.Peek()
		require.True(t, q.Remove(served))
		if served == low {
			// The calls that came in its first 27 seconds, nine tenths of its time, go ahead of it, one each second.
			require.Equal(t, 2*27, second)
			return
		}
		require.Less(t, second, 1000, "it waits forever")
		now = now.Add(time.Second)
	}
}

// Calls look at the clock before they enter the queue, one after the other.
func TestCallsOfOnePriorityGoInTheOrderOfTheirArrival(t *testing.T) {
	q, now := &queue{}, time.Now()
	var pushed []*waiter
	for i := range 20 {
		w := newWaiter(nil, nil, &Target{priority: 5})
		w.queuedAt, w.timeout = now.Add(-time.Duration(i)*time.Microsecond), time.Minute
		q.Push(w)
		pushed = append(pushed, w)
	}
	client := q.arrive(now.Add(-time.Second), DefaultPriority, 0)
	for _, w := range pushed {
		require.Same(t, w, q.Peek())
		require.True(t, w.turn.before(client))
		require.True(t, q.Remove(w))
	}
}

func TestCallsOfOneWorkerWaitBesideTheOthers(t *testing.T) {
	q := &queue{}
	push := func(worker string, priority int) *waiter {
		w := newWaiter(nil, nil, &Target{worker: worker, priority: priority})
		w.queuedAt, w.timeout = time.Now(), time.Hour
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

func BenchmarkQueue(b *testing.B) {
	q := &queue{}
	push := func() {
		w := newWaiter(&poolState{}, nil, &Target{})
		w.queuedAt, w.timeout = time.Now(), time.Minute
		q.Push(w)
	}
	for range 100 {
		push()
	}
	for b.Loop() {
		push()
		w := q.Peek()
		q.Remove(w)
		w.recycle()
	}
}
