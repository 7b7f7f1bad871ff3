package expirylru

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func order(l *LRU[int]) (ids []string) {
	for e := range l.All {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestEntriesAreOrderedByLastUse(t *testing.T) {
	l := New[int]()
	require.Nil(t, l.Oldest())
	entries := map[string]*Entry[int]{}
	for _, id := range []string{"a", "b", "c"} {
		entries[id] = &Entry[int]{ID: id, TTL: 10}
		l.Add(entries[id])
	}
	l.Touch(entries["a"], 1, 10)
	require.Equal(t, []string{"b", "c", "a"}, order(l))
	l.Touch(entries["a"], 0, 10)
	require.Equal(t, int64(1), entries["a"].LastAccessed, "LastAccessed never goes backwards")
	l.Touch(entries["c"], 2, 10)
	l.Remove(entries["b"])
	require.Equal(t, []string{"a", "c"}, order(l))
	require.Equal(t, entries["a"], l.Oldest())
	require.Nil(t, l.Get("b"))
	require.Nil(t, l.Live("a", 11))
	require.Equal(t, entries["a"], l.Get("a"))
	require.Equal(t, entries["a"], l.Live("a", 10))
}

func TestInsertKeepsTheOrderOfLastUse(t *testing.T) {
	for _, moments := range [][]int64{{1, 2, 3}, {3, 2, 1}, {2, 1, 3}, {2, 3, 1}, {1, 3, 2}, {1, 1, 1}} {
		l := New[int]()
		for i, at := range moments {
			l.Insert(&Entry[int]{ID: string(rune('a' + i)), LastAccessed: at, TTL: 10})
		}
		var forward, backward []int64
		for e := range l.All {
			forward = append(forward, e.LastAccessed)
		}
		for at := l.order.Back(); at != nil; at = at.Prev() {
			backward = append(backward, at.Value.(*Entry[int]).LastAccessed)
		}
		require.IsIncreasing(t, append([]int64{0}, slices.Compact(slices.Clone(forward))...))
		slices.Reverse(backward)
		require.Equal(t, forward, backward)
		require.Len(t, forward, 3)
	}
}

// Sweep's shortcut must never skip an expired entry: a scan of all entries says which ones have expired.
func TestSweepRemovesEveryExpiredEntry(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ids := []string{"a", "b", "c", "d", "e", "f"}
	for range 200 {
		l := New[int]()
		for now := range int64(60) {
			id, ttl := ids[random.IntN(len(ids))], random.Int64N(20)+1
			switch e := l.Get(id); {
			case e == nil:
				l.Add(&Entry[int]{ID: id, LastAccessed: now, TTL: ttl})
			case random.IntN(4) == 0:
				l.Remove(e)
			default:
				l.Touch(e, now, ttl)
			}
			if random.IntN(3) > 0 {
				continue
			}
			want := map[string]bool{}
			for e := range l.All {
				if now >= e.LastAccessed+e.TTL {
					want[e.ID] = true
				}
			}
			got := map[string]bool{}
			for _, e := range l.Sweep(now) {
				got[e.ID] = true
			}
			require.Equal(t, want, got)
			require.Len(t, order(l), l.Len())
		}
	}
}
