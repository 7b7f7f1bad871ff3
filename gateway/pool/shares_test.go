package pool

import (
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
		q, now := &queue{}, time.Now()
		var waiting []*waiter
		for range 200 {
			now = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			if random.IntN(3) > 0 || len(waiting) == 0 {
				c := &Call{client: fmt.Sprint(random.IntN(4))}
				w := newWaiter(nil, c, &Target{priority: random.IntN(MaxPriority + 1), worker: []string{"", "p/0"}[random.IntN(2)]})
				w.queuedAt, w.timeout = now, time.Minute
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
				require.False(t, w.client == got.client && got.before(w), "it is the last of its client")
			}
		}
	}
}

// A refusal must not take longer in a longer queue: it is made under the lock of the pool.
func BenchmarkRefusalOfAFullQueue(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			q := &queue{}
			for i := range size {
				w := newWaiter(nil, &Call{client: fmt.Sprint(i % 100)}, &Target{})
				w.queuedAt, w.timeout = time.Now(), time.Minute
				q.Push(w)
			}
			for b.Loop() {
				q.shares.displaceable("1")
			}
		})
	}
}
