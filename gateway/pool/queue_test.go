package pool

import (
	"context"
	"fmt"
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
		q := newQueue()
		var model []*waiter // in the order of arrival
		priorities := map[*waiter]int{}
		now := time.Now()
		for range 200 {
			now = now.Add(time.Duration(random.IntN(3)) * time.Second / 2)
			switch n := random.IntN(10); {
			case n < 5:
				w := newWaiter(nil, &Call{}, &Target{})
				priority := random.IntN(MaxPriority + 1)
				w.arrival, w.timeout = q.arrive(now, priority, timeout), timeout
				q.Push(w)
				model, priorities[w] = append(model, w), priority
			case n < 8:
				got := q.First(line{})
				if len(model) == 0 {
					require.Nil(t, got)
					continue
				}
				require.True(t, q.Remove(got))
				level := func(w *waiter) float64 { return float64(priorities[w]) + now.Sub(w.at).Seconds() }
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
			require.Equal(t, len(model) == 0, q.First(line{}) == nil)
		}
	}
}

// Calls look at the clock before they enter the queue, one after the other.
func TestCallsOfOnePriorityGoInTheOrderOfTheirArrival(t *testing.T) {
	q, now := newQueue(), time.Now()
	var pushed []*waiter
	for i := range 20 {
		w := newWaiter(nil, &Call{}, &Target{})
		w.timeout = time.Minute
		w.arrival = q.arrive(now.Add(-time.Duration(i)*time.Microsecond), 5, w.timeout)
		q.Push(w)
		pushed = append(pushed, w)
	}
	client := q.arrive(now.Add(-time.Second), DefaultPriority, 0)
	for _, w := range pushed {
		require.Same(t, w, q.First(line{}))
		require.True(t, w.before(client))
		require.True(t, q.Remove(w))
	}
}

func TestCallsOfOneWorkerWaitBesideTheOthers(t *testing.T) {
	q := newQueue()
	push := func(worker string, priority int) *waiter {
		w := newWaiter(nil, &Call{}, &Target{worker: worker})
		w.arrival, w.timeout = q.arrive(time.Now(), priority, time.Hour), time.Hour
		q.Push(w)
		return w
	}
	first, bound, urgent, other, last := push("", 0), push("p/0", 0), push("p/0", 9), push("p/1", 0), push("", 0)
	require.Equal(t, 5, q.Len())
	require.Len(t, q.All(), 5)
	require.Same(t, first, q.First(line{}))
	require.Same(t, urgent, q.First(line{worker: "p/0"}))
	require.Same(t, other, q.First(line{worker: "p/1"}))
	require.Nil(t, q.First(line{worker: "p/2"}))
	require.True(t, first.before(bound.arrival) && bound.before(other.arrival) && urgent.before(first.arrival))
	require.Nil(t, q.Leaver(CallsAndClients))
	require.True(t, q.Remove(last))
	last.forward = func(context.Context, Place) error { return nil }
	q.Push(last)
	require.Same(t, last, q.Leaver(CallsAndClients), "behind those that must stay")
	client := newWaiter(nil, nil, &Target{})
	client.at, client.timeout, client.forward = time.Now().Add(-time.Hour), time.Hour, last.forward
	client.arrival = arrivalOf(client.at, 0, client.timeout, 100)
	q.Push(client)
	require.Same(t, client, q.Leaver(CallsAndClients))
	require.Equal(t, 1, q.Clients())
	held := newWaiter(nil, &Call{}, &Target{arrived: client.arrival})
	held.held, held.timeout, held.forward = "s", time.Minute, last.forward
	q.Push(held)
	require.Same(t, held, q.First(line{session: "s"}))
	require.True(t, q.Remove(client))
	require.True(t, q.Remove(held))
	require.Same(t, last, q.Leaver(CallsAndClients), "a held call must not leave")
	for _, w := range []*waiter{urgent, first, bound, other, last} {
		require.True(t, q.Remove(w))
		require.False(t, q.Remove(w), "it was removed before")
	}
	require.Zero(t, q.Len())
	require.True(t, q.Empty("p/0", ""))
	require.Len(t, q.lines, 4)
}

func TestAFullQueueDisplacesTheLastCallOfWhoHasTheMost(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		q, now := newQueue(), time.Now()
		var waiting []*waiter
		for range 200 {
			now = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			if random.IntN(3) > 0 || len(waiting) == 0 {
				c := &Call{client: fmt.Sprint(random.IntN(4))}
				w := newWaiter(nil, c, &Target{worker: []string{"", "p/0"}[random.IntN(2)]})
				w.arrival, w.timeout = q.arrive(now, random.IntN(MaxPriority+1), time.Minute), time.Minute
				q.Push(w)
				waiting = append(waiting, w)
			} else {
				i := random.IntN(len(waiting))
				require.True(t, q.Remove(waiting[i]))
				waiting = slices.Delete(waiting, i, i+1)
			}
			counts := map[string]int{}
			for _, w := range waiting {
				counts[w.call.client]++
			}
			asking := fmt.Sprint(random.IntN(5))
			got := q.shares.displaceable(asking)
			most := 0
			for _, n := range counts {
				most = max(most, n)
			}
			if most <= counts[asking]+1 {
				require.Nil(t, got)
				continue
			}
			require.NotNil(t, got)
			require.Equal(t, most, counts[got.call.client])
			for _, w := range waiting {
				require.False(t, w.call.client == got.call.client && got.before(w.arrival), "it is the last of its client")
			}
		}
	}
}
