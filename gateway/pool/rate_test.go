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
		w := &rateWindow{limit: limit}
		now := time.Unix(1_700_000_000, 0).Add(time.Duration(random.IntN(1e9)))
		var startedAt []time.Time
		for range 2000 {
			now = now.Add(time.Duration(random.Int64N(int64(6 * time.Second))))
			full, wait := w.full(now)
			if full {
				require.Positive(t, wait)
				require.LessOrEqual(t, wait, 61*time.Second)
				stillFull, _ := w.full(now.Add(wait))
				require.False(t, stillFull, "the returned wait is enough")
				w = replay(limit, startedAt, now) // full has advanced the window
				continue
			}
			w.add()
			startedAt = append(startedAt, now)
			recent := 0
			for _, at := range startedAt {
				if now.Sub(at) < time.Minute {
					recent++
				}
			}
			require.LessOrEqual(t, recent, limit)
		}
		require.NotEmpty(t, startedAt)
	}
}

func replay(limit int, startedAt []time.Time, now time.Time) *rateWindow {
	w := &rateWindow{limit: limit}
	for _, at := range startedAt {
		w.advance(at)
		w.add()
	}
	w.advance(now)
	return w
}

// A clock that is corrected by hours, as after the resumption of a virtual machine, must not keep a worker from calls
// for hours.
func TestAClockThatIsSetBackHoldsNoCallForLongerThanAMinute(t *testing.T) {
	w := &rateWindow{limit: 2}
	now := time.Unix(1_700_000_000, 0)
	w.advance(now)
	w.add()
	w.add()
	now = now.Add(-3 * time.Hour)
	full, wait := w.full(now)
	require.True(t, full, "the calls of the last minute count")
	require.LessOrEqual(t, wait, 61*time.Second)
	full, _ = w.full(now.Add(wait))
	require.False(t, full)
	w.add()
	w.add()
	full, _ = w.full(now.Add(wait + time.Second))
	require.True(t, full)
}

func TestWindowIsEmptyAfterALongPause(t *testing.T) {
	w := &rateWindow{limit: 1}
	now := time.Unix(1_700_000_000, 0)
	w.advance(now)
	w.add()
	full, wait := w.full(now)
	require.True(t, full)
	require.Equal(t, 61*time.Second, wait)
	full, _ = w.full(now.Add(time.Hour))
	require.False(t, full)
}
