package sessions_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

func testFullRefuses(t *testing.T, s *storeEnv) {
	store := s.store(bounded(3, spec.OnFullRefuse))
	for _, id := range []string{"a", "b"} {
		create(t, store, id, time.Hour)
	}
	create(t, store, "c", time.Minute)
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "d"})), api.ErrStoreFull)
	require.False(t, isLive(t, store, "d"))
	_, err := sessions.Create(t.Context(), store, &sessions.Session{ID: "a"})
	require.ErrorIs(t, err, api.ErrSessionExists, "a full store still finds the existing session first")
	update(t, store, "a", "k", "1")
	s.clock.advance(time.Minute) // c expires
	create(t, store, "d", time.Hour)
	require.NoError(t, store.Delete(t.Context(), "d"))
	create(t, store, "e", time.Hour)
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "f"})), api.ErrStoreFull)
}

func testFullEvicts(t *testing.T, s *storeEnv) {
	store := s.store(bounded(3, spec.OnFullEvict))
	for _, id := range []string{"a", "b", "c"} {
		create(t, store, id, time.Hour)
		s.clock.advance(time.Minute)
	}
	get(t, store, "a")
	s.clock.advance(time.Minute)
	create(t, store, "d", time.Hour)
	require.False(t, isLive(t, store, "b"), "b was the least recently used")
	s.clock.advance(time.Minute)
	get(t, store, "c")
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "a"})), api.ErrSessionExists)
	require.True(t, isLive(t, store, "d"), "a failed create evicts nothing")
	s.clock.advance(time.Minute)
	create(t, store, "e", time.Hour)
	require.False(t, isLive(t, store, "a"))
	for _, id := range []string{"c", "d", "e"} {
		require.True(t, isLive(t, store, id), id)
	}
}

func testFollowsSettings(t *testing.T, s *storeEnv) {
	var settings atomic.Pointer[spec.Sessions]
	follow := func(max int, onFull string) { settings.Store(new(bounded(max, onFull).Settings())) }
	follow(1, spec.OnFullRefuse)
	store := s.store(sessions.Config{Settings: func() spec.Sessions { return *settings.Load() }})
	create(t, store, "a", time.Hour)
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "b"})), api.ErrStoreFull)
	follow(2, spec.OnFullRefuse)
	s.clock.advance(time.Minute)
	create(t, store, "b", time.Hour)
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "c"})), api.ErrStoreFull)
	follow(2, spec.OnFullEvict)
	create(t, store, "c", time.Hour)
	require.False(t, isLive(t, store, "a"))
	follow(1, spec.OnFullRefuse)
	require.True(t, isLive(t, store, "b"), "a lower Max deletes nothing")
}

func testIDs(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	for _, id := range []string{"a", strings.Repeat("x", sessions.MaxID), "user:42", "...", "a{b}c%20*?[]\\\"'~",
		sessions.NewTemporaryID()} {
		create(t, store, id, time.Minute)
		require.Equal(t, id, get(t, store, id).ID)
		require.True(t, isLive(t, store, id))
		require.NoError(t, store.Delete(t.Context(), id))
	}
	for _, id := range []string{"", strings.Repeat("x", sessions.MaxID+1), "a/b", "a b", "ä", "a\x00", "\n", ".", ".."} {
		invalid := &api.Error{Code: api.CodeInvalid}
		require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: id})), invalid, "%q", id)
		require.ErrorIs(t, errorOf(store.Get(t.Context(), id)), invalid, "%q", id)
		require.ErrorIs(t, errorOf(store.Update(t.Context(), id, setData("k", "1"))), invalid, "%q", id)
		require.ErrorIs(t, store.Delete(t.Context(), id), invalid, "%q", id)
	}
}

func testValueLimits(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	frame, err := (&sessions.Session{Data: map[string]json.RawMessage{"k": raw(`""`)}}).Body()
	require.NoError(t, err)
	longest := `"` + strings.Repeat("x", sessions.MaxBody-len(frame)) + `"`
	_, err = sessions.Create(t.Context(), store,
		&sessions.Session{ID: "a", Data: map[string]json.RawMessage{"k": raw(longest)}})
	require.NoError(t, err)
	got := get(t, store, "a")
	require.Equal(t, longest, string(got.Data["k"]))
	_, err = store.Update(t.Context(), "a", setData("l", "1"))
	require.ErrorIs(t, err, &api.Error{Code: api.CodePayloadTooLarge})
	_, err = sessions.Create(t.Context(), store,
		&sessions.Session{ID: "b", Data: map[string]json.RawMessage{"k": raw(longest + " "), "l": raw("1")}})
	require.ErrorIs(t, err, &api.Error{Code: api.CodePayloadTooLarge})
	require.NoError(t, errorOf(sessions.Create(t.Context(), store,
		&sessions.Session{ID: "c", TTL: spec.Duration(sessions.MaxTTL)})))
	deep := strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000)
	update(t, store, "c", "\"\\\u2028", deep)
	require.Equal(t, deep, string(get(t, store, "c").Data["\"\\\u2028"]))
}

func testReportsWhatItRemoves(t *testing.T, s *storeEnv) {
	removed := map[sessions.Removal]int{}
	named := map[string]sessions.Removal{}
	config := bounded(3, spec.OnFullEvict)
	config.Removed = func(why sessions.Removal, n int, ids []string) {
		removed[why] += n
		for _, id := range ids {
			named[id] = why
		}
	}
	store := s.store(config)
	for _, id := range []string{"a", "b"} {
		create(t, store, id, time.Hour)
		s.clock.advance(time.Minute)
	}
	create(t, store, "c", time.Minute)
	require.NoError(t, store.Delete(t.Context(), "b"))
	create(t, store, "d", time.Hour)
	require.Empty(t, removed, "a session that somebody deletes is none")
	s.clock.advance(time.Second)
	create(t, store, "e", time.Hour)
	require.Equal(t, map[string]sessions.Removal{"a": sessions.Evicted}, named)
	s.clock.advance(2 * time.Minute)
	require.NoError(t, errorOf(store.DeleteExpired(t.Context())))
	require.Equal(t, map[sessions.Removal]int{sessions.Evicted: 1, sessions.Expired: 1}, removed)
	require.Equal(t, map[string]sessions.Removal{"a": sessions.Evicted, "c": sessions.Expired}, named)
}
