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

func TestAFullQueueDisplacesTheLastCallOfWhoHasTheMost(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		q, now := newQueue(), time.Now()
		var waiting []*waiter
		for range 200 {
			now = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			if random.IntN(3) > 0 || len(waiting) == 0 {
				c := &Call{client: fmt.Sprint(random.IntN(4))}
				w := newWaiter(nil, c, &Target{priority: random.IntN(MaxPriority + 1), worker: []string{"", "p/0"}[random.IntN(2)]})
				w.at, w.timeout = now, time.Minute
				q.Push(w)
				waiting = append(waiting, w)
			} else {
				i := random.IntN(len(waiting))
				require.True(t, q.Remove(waiting[i]))
				waiting = slices.Delete(waiting, i, i+1)
			}
			counts := map[string]int{}
			for _, w := range waiting {
				counts[w.client]++
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
			require.Equal(t, most, counts[got.client])
			for _, w := range waiting {
				require.False(t, w.client == got.client && got.before(w.arrival), "it is the last of its client")
			}
		}
	}
}

// A step in a long queue must cost about what it does in a short one: all are made under the lock of the pool.
func BenchmarkQueueStep(b *testing.B) {
	forward := func(context.Context, Place) error { return nil }
	for _, size := range []int{200, 20_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := newPoolState(&Dispatcher{monitor: &controlPlaneMonitor{}}, "p")
			push := func(i int, forward func(context.Context, Place) error) {
				w := newWaiter(p, &Call{client: fmt.Sprint(i % 100)}, &Target{})
				if i%2 == 0 {
					w = newWaiter(p, nil, &Target{})
				}
				w.at, w.timeout, w.forward = time.Now(), time.Hour, forward
				p.queue.Push(w)
			}
			for i := range size {
				push(i, nil) // which must not leave
			}
			push(0, forward)
			push(1, forward)
			for i := 0; b.Loop(); i++ {
				p.displaceLocked("1")
				p.queue.Remove(p.queue.Leaver(CallsAndClients))
				push(i, forward)
				p.queue.Remove(p.queue.First(line{clients: true}))
				push(2*i, nil)
				p.dispatchQueueLocked(time.Now())
				p.expireQueueLocked(time.Now())
			}
		})
	}
}
