package expirylru

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEntriesAreOrderedByLastUse(t *testing.T) {
	l := New[int]()
	require.Nil(t, l.Oldest())
	entries := map[string]*Entry[int]{}
	for _, id := range []string{"a", "b", "c"} {
		entries[id] = &Entry[int]{ID: id, TTL: 10}
		l.Add(entries[id])
	}
	l.Touch(entries["a"], 1, 10)
	require.Equal(t, []string{"b", "c", "a"}, l.IDs())
	l.Touch(entries["a"], 0, 10)
	require.Equal(t, int64(1), entries["a"].LastAccessed, "LastAccessed never goes backwards")
	l.Touch(entries["c"], 2, 10)
	l.Touch(entries["b"], 1, 10)
	require.Equal(t, []string{"a", "c", "b"}, l.IDs(), "b was used last, after the clock was set back")
	l.Add(&Entry[int]{ID: "d", LastAccessed: 1, TTL: 10})
	require.Equal(t, []string{"a", "d", "c", "b"}, l.IDs(), "d was not used now")
	l.Remove(l.Get("d"))
	l.Remove(entries["b"])
	require.Equal(t, []string{"a", "c"}, l.IDs())
	require.Equal(t, entries["a"], l.Oldest())
	require.Nil(t, l.Get("b"))
	require.Nil(t, l.Live("a", 11))
	require.Equal(t, entries["a"], l.Get("a"))
	require.Equal(t, entries["a"], l.Live("a", 10))
}

// Whatever is added, used and removed, the entries are those of a plain list, ordered by last use.
func TestEntriesKeepTheOrderOfLastUse(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		l, want := New[int](), map[string]int64{}
		for now := range int64(60) {
			id := string(rune('a' + random.IntN(8)))
			e := l.Get(id)
			switch {
			case e == nil:
				want[id] = random.Int64N(now + 1)
				l.Add(&Entry[int]{ID: id, LastAccessed: want[id], TTL: 1000})
			case random.IntN(3) == 0:
				l.Remove(e)
				delete(want, id)
			default:
				l.Touch(e, now, 1000)
				want[id] = now
			}
			got, uses := map[string]int64{}, []int64{0}
			for _, id := range l.IDs() {
				got[id] = l.Get(id).LastAccessed
				uses = append(uses, got[id])
			}
			require.Equal(t, want, got)
			require.IsNonDecreasing(t, uses)
			require.Equal(t, len(want), l.Len())
			if len(want) > 0 {
				require.Equal(t, uses[1], l.Oldest().LastAccessed)
			}
		}
		for e := range l.All {
			l.Remove(e)
		}
		require.Zero(t, l.Len())
		require.Nil(t, l.Oldest())
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
			require.Len(t, l.IDs(), l.Len())
		}
	}
}
