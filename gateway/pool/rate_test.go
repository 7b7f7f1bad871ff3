package pool

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnyMinuteHasAtMostLimitCalls(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		limit := 1 + random.IntN(20)
		now := time.Unix(1_700_000_000, random.Int64N(1e9))
		w := &rateWindow{}
		var startedAt []time.Time
		recent := func(span time.Duration) (n int) {
			for _, at := range startedAt {
				if now.Sub(at) < span {
					n++
				}
			}
			return n
		}
		for range 1000 {
			now = now.Add(time.Duration(random.Int64N(int64(6 * time.Second))))
			if random.IntN(100) == 0 {
				now = now.Add(time.Hour)
			}
			if wait := w.wait(limit, now); wait != 0 {
				require.GreaterOrEqual(t, recent(61*time.Second), limit)
				require.Positive(t, wait)
				require.LessOrEqual(t, wait, 61*time.Second)
				if random.IntN(2) == 0 {
					continue
				}
				now = now.Add(wait)
				require.Zero(t, w.wait(limit, now), "the returned wait is enough")
			}
			w.add(now)
			startedAt = append(startedAt, now)
			require.LessOrEqual(t, recent(time.Minute), limit)
		}
		require.NotEmpty(t, startedAt)
	}
}
