package pool

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// began is when the windows of these tests begin.
var began = time.Unix(1_700_000_000, 0)

func TestAnyMinuteHasAtMostLimitCalls(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		limit := 1 + random.IntN(20)
		now := began.Add(time.Duration(random.IntN(1e9)))
		w := &rateWindow{limit: limit, began: began}
		var startedAt []time.Time
		recent := func(span time.Duration) (n int) {
			for _, at := range startedAt {
				if now.Sub(at) < span {
					n++
				}
			}
			return n
		}
		for range 2000 {
			now = now.Add(time.Duration(random.Int64N(int64(6 * time.Second))))
			if random.IntN(100) == 0 {
				now = now.Add(time.Hour)
			}
			full, wait := w.full(now)
			if full {
				require.GreaterOrEqual(t, recent(61*time.Second), limit)
				require.Positive(t, wait)
				require.LessOrEqual(t, wait, 61*time.Second)
				stillFull, _ := w.full(now.Add(wait))
				require.False(t, stillFull, "the returned wait is enough")
				w = replay(limit, startedAt, now) // full has advanced the window
				continue
			}
			w.add()
			startedAt = append(startedAt, now)
			require.LessOrEqual(t, recent(time.Minute), limit)
		}
		require.NotEmpty(t, startedAt)
	}
}

func replay(limit int, startedAt []time.Time, now time.Time) *rateWindow {
	w := &rateWindow{limit: limit, began: began}
	for _, at := range startedAt {
		w.advance(at)
		w.add()
	}
	w.advance(now)
	return w
}
