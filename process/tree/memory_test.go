package tree

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestMemoryIsPSSAndInBetweenItsGrowthIsThatOfRSS(t *testing.T) {
	var m Meter
	var budget PSSBudget
	reads, pss, readable := 0, int64(450), true
	at := time.Unix(1000, 0)
	sample := func(after time.Duration, rss int64, budget *PSSBudget) api.Sample {
		s := api.Sample{At: at.Add(after), RSSBytes: rss}
		m.addMemoryLocked(&s, []*Entry{{}}, budget, func(Identity) (int64, bool) { reads++; return pss, readable })
		return s
	}
	require.Equal(t, api.Sample{At: at, RSSBytes: 1100, PSSBytes: 450, MemoryBytes: 450, MemorySource: FromPSS},
		sample(0, 1100, &budget))
	require.Equal(t, api.Sample{At: at.Add(time.Second), RSSBytes: 1150, MemoryBytes: 500, MemorySource: Estimated},
		sample(time.Second, 1150, &budget))
	require.Equal(t, 1, reads, "a small change is not worth reading the page tables")
	pss = 800
	require.Equal(t, FromPSS, sample(2*time.Second, 1400, &budget).MemorySource, "a large one is")
	require.Equal(t, FromPSS, sample(3*time.Second, 1400, nil).MemorySource, "a reading that decides has no budget")
	require.Equal(t, Estimated, sample(4*time.Second, 1400, &budget).MemorySource)
	require.Equal(t, FromPSS, sample(3*time.Second+pssMaxAge, 1400, &budget).MemorySource, "shared pages may have changed")
	require.Equal(t, 4, reads)

	budget.spend(time.Hour)
	exhausted := sample(time.Hour, 9000, &budget)
	require.Equal(t, Estimated, exhausted.MemorySource, "the budget is exhausted")
	require.EqualValues(t, 800+9000-1400, exhausted.MemoryBytes)
	require.Zero(t, sample(time.Hour, 1, &budget).MemoryBytes, "never negative")

	readable = false
	require.Equal(t, api.Sample{At: at.Add(2 * time.Hour), RSSBytes: 100, MemoryBytes: 100, MemorySource: FromRSS},
		sample(2*time.Hour, 100, nil))
	require.Equal(t, FromRSS, sample(2*time.Hour+time.Second, 101, &budget).MemorySource)
}

func TestReadingPSSTakesAtMostOnePercentOfACore(t *testing.T) {
	var budget PSSBudget
	const read, trees, every = 20 * time.Millisecond, 100, 10 * time.Second
	now, spent := time.Unix(1000, 0), time.Duration(0)
	rounds := 360 // an hour
	for range rounds {
		for range trees {
			if budget.available(now) {
				budget.spend(read)
				spent += read
			}
		}
		now = now.Add(every)
	}
	require.InDelta(t, pssShare, float64(spent)/float64(time.Duration(rounds)*every), 0.001)
}
