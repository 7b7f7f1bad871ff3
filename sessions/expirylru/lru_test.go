package expirylru

import (
	"maps"
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

// Whatever is added, used, removed and swept, the entries are those of a plain map, ordered by last use. Sweep has a
// shortcut, which must never skip an expired entry.
func TestEntriesAreThoseOfAMapInTheOrderOfLastUse(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	type use struct{ at, ttl int64 }
	for range 400 {
		l, want := New[int](), map[string]use{}
		for now := range int64(60) {
			id, ttl := string(rune('a'+random.IntN(8))), random.Int64N(20)+1
			switch e := l.Get(id); {
			case e == nil:
				want[id] = use{random.Int64N(now + 1), ttl}
				l.Add(&Entry[int]{ID: id, LastAccessed: want[id].at, TTL: ttl})
			case random.IntN(4) == 0:
				l.Remove(e)
				delete(want, id)
			default:
				l.Touch(e, now, ttl)
				want[id] = use{now, ttl}
			}
			if random.IntN(3) == 0 {
				expired := func(id string, u use) bool { return now >= u.at+u.ttl }
				for _, e := range l.Sweep(now) {
					require.True(t, expired(e.ID, want[e.ID]))
				}
				maps.DeleteFunc(want, expired)
			}
			got, uses := map[string]use{}, []int64{0}
			for _, id := range l.IDs() {
				e := l.Get(id)
				got[id], uses = use{e.LastAccessed, e.TTL}, append(uses, e.LastAccessed)
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
