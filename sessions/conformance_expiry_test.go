package sessions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

func testExpiry(t *testing.T, s *storeEnv) {
	for name, try := range map[string]func(sessions.Store) error{
		"get": func(store sessions.Store) error { _, err := store.Get(t.Context(), "a"); return err },
		"update": func(store sessions.Store) error {
			_, err := store.Update(t.Context(), "a", setData("k", "1"))
			return err
		},
		"delete": func(store sessions.Store) error { return store.Delete(t.Context(), "a") },
	} {
		store := s.store(sessions.Config{})
		create(t, store, "a", time.Minute)
		create(t, store, "b", time.Hour)
		s.clock.advance(time.Minute - time.Millisecond)
		require.True(t, isLive(t, store, "a"))
		s.clock.advance(time.Millisecond)
		require.ErrorIs(t, try(store), api.ErrSessionNotFound, name)
		require.False(t, isLive(t, store, "a"), name)
		require.True(t, isLive(t, store, "b"), name)
		create(t, store, "a", time.Minute)
		s.clock.advance(time.Minute - time.Millisecond)
		require.NoError(t, try(store), name)
	}
}

func testUseExtendsTTL(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Minute)
	for range 3 {
		s.clock.advance(time.Minute - time.Millisecond)
		require.Equal(t, s.clock.read().UTC(), get(t, store, "a").LastAccessed)
		s.clock.advance(time.Minute - time.Millisecond)
		update(t, store, "a", "k", "1")
	}
	s.clock.advance(time.Minute)
	require.ErrorIs(t, errorOf(store.Get(t.Context(), "a")), api.ErrSessionNotFound)
}

func testTTLChange(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", 10*time.Minute)
	set := func(ttl time.Duration) *sessions.Session {
		updated, err := store.Update(t.Context(), "a",
			func(x *sessions.Session) error { x.TTL = spec.Duration(ttl); return nil })
		require.NoError(t, err)
		return updated
	}
	set(30 * time.Minute)
	s.clock.advance(20 * time.Minute)
	require.Equal(t, spec.Duration(time.Hour), set(0).TTL)
	s.clock.advance(59 * time.Minute)
	require.True(t, isLive(t, store, "a"))
	set(time.Second)
	s.clock.advance(time.Second)
	require.False(t, isLive(t, store, "a"))
}

func testClockGoesBack(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	made := create(t, store, "a", time.Minute)
	s.clock.set(made.CreatedAt.Add(-time.Hour))
	require.Equal(t, made.LastAccessed, get(t, store, "a").LastAccessed)
	require.Equal(t, made.LastAccessed, update(t, store, "a", "k", "1").LastAccessed)
	s.clock.set(made.CreatedAt.Add(time.Minute - time.Millisecond))
	require.True(t, isLive(t, store, "a"))
}

func testDeleteExpired(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	for i := range 10 {
		create(t, store, fmt.Sprint("short", i), time.Minute)
		create(t, store, fmt.Sprint("long", i), time.Hour)
	}
	count, err := store.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.Zero(t, count)
	s.clock.advance(time.Minute)
	count, err = store.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10, count)
	count, err = store.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.Zero(t, count)
	requireCount(t, 10, store)
}
