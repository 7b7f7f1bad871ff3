package redis

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

func put(key, value string) func(*sessions.Session) error {
	return func(s *sessions.Session) error { s.Data[key] = json.RawMessage(value); return nil }
}

func TestAnOutdatedCacheEntryIsDetected(t *testing.T) {
	server := redistest.Start(t)
	here, there := openStore(t, Options{URL: server.URL()}), openStore(t, Options{URL: server.URL()})
	require.NoError(t, errorOf(sessions.Create(t.Context(), here, &sessions.Session{ID: "a"})))
	for range 2 { // the second time from the cache
		mine, err := here.Get(t.Context(), "a")
		require.NoError(t, err)
		mine.Data["mine"] = json.RawMessage("1")
	}
	_, err := there.Update(t.Context(), "a", put("theirs", "1"))
	require.NoError(t, err)

	seen := []int64{}
	updated, err := here.Update(t.Context(), "a", func(s *sessions.Session) error {
		seen = append(seen, s.Version)
		return sessions.CheckVersion(s, 2)
	})
	require.NoError(t, err, "a change that fails on a cached session is tried on the stored one")
	require.Equal(t, []int64{1, 2}, seen)
	require.Equal(t, map[string]json.RawMessage{"theirs": json.RawMessage("1")}, updated.Data)

	_, err = there.Update(t.Context(), "a", put("more", "2"))
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
	of := func(n int) record {
		return record{Session: &sessions.Session{ID: fmt.Sprint(n)}, writeID: fmt.Sprint("write", n)}
	}
	c.put(of(0), maxCachedBody+1)
	require.Empty(t, c.get("0").writeID, "a large body is not cached")
	const many = 2 * cacheBytes / maxCachedBody
	for n := range many {
		c.put(of(n), maxCachedBody)
		c.put(of(n), maxCachedBody)
		require.Equal(t, "write0", c.get("0").writeID, "a used entry stays")
		require.LessOrEqual(t, c.bytes, cacheBytes)
	}
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

func TestTheUseOfASessionIsWrittenOnceASecond(t *testing.T) {
	server := redistest.Start(t)
	now := time.Now().Truncate(time.Millisecond).UTC()
	config := sessions.Config{Now: func() time.Time { return now }}
	here, there := openStore(t, Options{URL: server.URL(), Config: config}), openStore(t,
		Options{URL: server.URL(), Config: config})
	began := now
	require.NoError(t, errorOf(sessions.Create(t.Context(), here,
		&sessions.Session{ID: "a", TTL: spec.Duration(time.Hour)})))
	written := func() time.Time {
		accessed, err := here.client.HGet(t.Context(), here.key("a")[0], "t").Int64()
		require.NoError(t, err)
		return time.UnixMilli(accessed).UTC()
	}
	get := func(store *Store) *sessions.Session {
		got, err := store.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, now, got.LastAccessed)
		return got
	}
	get(here) // caches it

	now = began.Add(maxTTLLoss - time.Millisecond)
	get(here)
	require.Equal(t, began, written())
	updated, err := here.Update(t.Context(), "a", put("k", "1"))
	require.NoError(t, err)
	require.Equal(t, now, updated.LastAccessed)
	require.Equal(t, began, written(), "an update has the use of a moment ago, too")
	require.Equal(t, updated, get(here))

	for _, use := range []func(){
		func() { get(here) },
		func() {
			_, err := here.Update(t.Context(), "a", put("k", "2"))
			require.NoError(t, err)
		},
	} {
		now = now.Add(maxTTLLoss)
		use()
		require.Equal(t, now, written())
	}

	_, err = there.Update(t.Context(), "a", put("k", "3"))
	require.NoError(t, err)
	require.Equal(t, json.RawMessage("3"), get(here).Data["k"], "what another host wrote is seen at once")
	short, err := here.Update(t.Context(), "a",
		func(s *sessions.Session) error { s.TTL = spec.Duration(100 * time.Millisecond); return nil })
	require.NoError(t, err)
	require.Equal(t, now, short.LastAccessed)
	now = now.Add(100 * time.Millisecond)
	_, err = here.Get(t.Context(), "a")
	require.ErrorIs(t, err, api.ErrSessionNotFound, "a cached session expires by the time that the server has")
}

func TestAUseExtendsASessionWhoseLastUseHasALaterTime(t *testing.T) {
	server := redistest.Start(t)
	now := time.Now().Truncate(time.Millisecond).UTC()
	ahead := now.Add(time.Hour)
	there := openStore(t, Options{URL: server.URL(), Config: sessions.Config{Now: func() time.Time { return ahead }}})
	here := openStore(t, Options{URL: server.URL(), Config: sessions.Config{Now: func() time.Time { return now }}})
	const ttl = 30 * time.Minute
	require.NoError(t, errorOf(sessions.Create(t.Context(), there, &sessions.Session{ID: "a", TTL: spec.Duration(ttl)})))
	update := func() error {
		_, err := here.Update(t.Context(), "a", put("k", "1"))
		return err
	}
	get := func() error {
		_, err := here.Get(t.Context(), "a")
		return err
	}
	for i, use := range []func() error{get, get, update, update} { // the second time from the cache
		require.NoError(t, here.client.PExpire(t.Context(), here.key("a")[0], ttl/10).Err(), "most of the TTL has passed")
		require.NoError(t, use())
		left, err := here.client.PTTL(t.Context(), here.key("a")[0]).Result()
		require.NoError(t, err)
		require.Greater(t, left, ttl/2, "use %d", i)
	}
	got, err := here.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, ahead, got.LastAccessed, "the last use never goes backwards")
}
