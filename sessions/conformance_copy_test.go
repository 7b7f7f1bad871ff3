package sessions_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// foreign is a session as another store could have created it.
func (s *storeEnv) foreign(id string, ttl time.Duration) *sessions.Session {
	now := s.clock.read().UTC()
	return &sessions.Session{
		ID: id, Version: 7, CreatedAt: now.Add(-time.Hour), LastAccessed: now.Add(-time.Minute), TTL: spec.Duration(ttl),
		Data: map[string]json.RawMessage{"k": raw(`"v"`)}, Programs: map[string]json.RawMessage{"p": raw("[1]")},
		Metadata: map[string]json.RawMessage{},
	}
}

func peek(t *testing.T, store sessions.Store, id string) *sessions.Session {
	t.Helper()
	found, err := store.Peek(t.Context(), []string{id})
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

func testPut(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	want := s.foreign("a", 10*time.Minute)
	require.NoError(t, copyTo(t, store, want))
	requireSame(t, want, peek(t, store, "a"))
	require.True(t, sessions.Equal(want, peek(t, store, "a")))
	require.True(t, isLive(t, store, "a"))
	s.clock.advance(9*time.Minute - time.Millisecond)
	require.True(t, isLive(t, store, "a"), "the TTL counts from the copied last use")
	s.clock.advance(time.Millisecond)
	require.False(t, isLive(t, store, "a"))
	require.Nil(t, peek(t, store, "a"))

	require.NoError(t, copyTo(t, store, s.foreign("a", 10*time.Minute)))
	updated := update(t, store, "a", "k", "2")
	require.Equal(t, int64(8), updated.Version)
	require.Equal(t, s.clock.read().UTC(), updated.LastAccessed)
}

func testPutReplaces(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Hour)
	get(t, store, "a")
	want := s.foreign("a", 10*time.Minute)
	for _, version := range []int64{9, 3} {
		want.Version = version
		require.NoError(t, copyTo(t, store, want))
		requireSame(t, want, peek(t, store, "a"))
	}
	requireCount(t, 1, store)
}

func testPutExpired(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	require.NoError(t, copyTo(t, store, s.foreign("a", time.Minute)))
	require.False(t, isLive(t, store, "a"))
	create(t, store, "a", time.Hour)
	require.NoError(t, copyTo(t, store, s.foreign("a", time.Minute)))
	require.False(t, isLive(t, store, "a"))
	create(t, store, "a", time.Hour)
}

func testPutIgnoresMax(t *testing.T, s *storeEnv) {
	store := s.store(bounded(1, spec.OnFullEvict))
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, copyTo(t, store, s.foreign(id, time.Hour)))
	}
	for _, id := range []string{"a", "b", "c"} {
		require.True(t, isLive(t, store, id), id)
	}
}

func testPutKeepsLRUOrder(t *testing.T, s *storeEnv) {
	store := s.store(bounded(3, spec.OnFullEvict))
	for i, id := range []string{"b", "c", "a"} {
		session := s.foreign(id, time.Hour)
		session.LastAccessed = session.LastAccessed.Add(time.Duration([]int{2, 3, 1}[i]) * time.Second)
		require.NoError(t, copyTo(t, store, session))
	}
	require.Equal(t, []string{"a", "b", "c"}, idsOf(t, store))
	create(t, store, "d", time.Hour)
	require.False(t, isLive(t, store, "a"))
	require.True(t, isLive(t, store, "b"))
}

func testPutInvalid(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	s.rejectsInvalid(store, func(x *sessions.Session) error { return copyTo(t, store, x) },
		map[string]func(*sessions.Session){
			"no id":        func(x *sessions.Session) { x.ID = "" },
			"no ttl":       func(x *sessions.Session) { x.TTL = 0 },
			"ttl too long": func(x *sessions.Session) { x.TTL = spec.Duration(sessions.MaxTTL + time.Second) },
		})
	require.ErrorIs(t, errorOf(store.Peek(t.Context(), []string{"a/b"})), api.ErrInvalid)
}

func testPeek(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	made := create(t, store, "a", time.Minute)
	s.clock.advance(time.Minute - time.Millisecond)
	found, err := store.Peek(t.Context(), []string{"b", "a"})
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Nil(t, found[0])
	requireSame(t, made, found[1])
	ids := idsOf(t, store)
	require.Equal(t, []string{"a"}, ids)
	s.clock.advance(time.Millisecond)
	require.Nil(t, peek(t, store, "a"))
	require.Empty(t, idsOf(t, store))
}

func testPutDuringUpdate(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Hour)
	updated := updateDuring(t, store, "a", func() {
		other := s.foreign("a", time.Hour)
		other.Version = 1
		require.NoError(t, copyTo(t, store, other))
	})
	require.Equal(t, map[string]json.RawMessage{"k": raw(`"v"`), "n": raw("1")}, updated.Data)
}

func testConcurrentPuts(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	want := make([]string, 200)
	for i := range want {
		want[i] = fmt.Sprintf("s%03d", i)
	}
	for _, err := range concurrently(len(want), func(i int) error {
		return copyTo(t, store, s.foreign(want[i], time.Hour))
	}) {
		require.NoError(t, err)
	}
	require.ElementsMatch(t, want, idsOf(t, store))
}
