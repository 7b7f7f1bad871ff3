package redis

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
)

func TestAnOutdatedCacheEntryIsDetected(t *testing.T) {
	server := redistest.Start(t)
	here, there := openStore(t, Options{URL: server.URL()}), openStore(t, Options{URL: server.URL()})
	_, err := here.Create(t.Context(), &sessions.Session{ID: "a"})
	require.NoError(t, err)
	for range 2 { // the second time from the cache
		mine, err := here.Get(t.Context(), "a")
		require.NoError(t, err)
		mine.Data["mine"] = json.RawMessage("1")
	}
	_, err = there.Update(t.Context(), "a", func(s *sessions.Session) error { s.Data["theirs"] = json.RawMessage("1"); return nil })
	require.NoError(t, err)

	seen := []int64{}
	updated, err := here.Update(t.Context(), "a", func(s *sessions.Session) error {
		seen = append(seen, s.Version)
		return sessions.CheckVersion(s, 2)
	})
	require.NoError(t, err, "a change that fails on a cached session is tried on the stored one")
	require.Equal(t, []int64{1, 2}, seen)
	require.Equal(t, map[string]json.RawMessage{"theirs": json.RawMessage("1")}, updated.Data)

	_, err = there.Update(t.Context(), "a", func(s *sessions.Session) error { s.Data["more"] = json.RawMessage("2"); return nil })
	require.NoError(t, err)
	got, err := here.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, got.Data, 2)
	require.NoError(t, there.Delete(t.Context(), "a"))
	_, err = here.Update(t.Context(), "a", func(*sessions.Session) error { return nil })
	require.ErrorContains(t, err, "session a not found")
}

func TestTheCacheIsBounded(t *testing.T) {
	c := newCache()
	of := func(n int) record { return record{&sessions.Session{ID: fmt.Sprint(n)}, fmt.Sprint("write", n)} }
	c.put(of(0), maxCachedBody+1)
	require.Empty(t, c.get("0").writeID, "a large body is not cached")
	const many = 2 * cacheBytes / maxCachedBody
	for n := range many {
		c.put(of(n), maxCachedBody)
		c.put(of(n), maxCachedBody)
		require.Equal(t, "write0", c.get("0").writeID, "a used entry stays")
		require.LessOrEqual(t, c.bytes, cacheBytes)
	}
	require.Equal(t, len(c.byID), c.order.Len())
	require.Empty(t, c.get("1").writeID)
	found, cached := c.take(fmt.Sprint(many - 1))
	require.True(t, cached)
	require.Equal(t, fmt.Sprint("write", many-1), found.writeID)
	_, cached = c.take(fmt.Sprint(many - 1))
	require.False(t, cached)
	for n := range many {
		c.take(fmt.Sprint(n))
	}
	require.Zero(t, c.bytes)
}
