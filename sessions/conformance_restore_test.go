package sessions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

func restore(t *testing.T, store sessions.Store, s *sessions.Session, want sessions.Restored) {
	t.Helper()
	did, err := restored(t.Context(), store, s)
	require.NoError(t, err)
	require.Equal(t, want, did)
}

func restored(ctx context.Context, store sessions.Store, s *sessions.Session) (sessions.Restored, error) {
	_, did, err := store.Put(ctx, s, sessions.ToRestore)
	return did, err
}

func testRestore(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	want := s.foreign("a", 10*time.Minute)
	restore(t, store, want, sessions.RestoredNew)
	requireSame(t, want, peek(t, store, "a"))
	restore(t, store, want, sessions.RestoredKept)
	requireSame(t, want, peek(t, store, "a"))
	require.True(t, isLive(t, store, "a"))
	updated := update(t, store, "a", "k", "2")
	require.Equal(t, want.Version+1, updated.Version, "versions continue")
	restore(t, store, want, sessions.RestoredKept)
	requireSame(t, updated, peek(t, store, "a"))

	require.NoError(t, store.Delete(t.Context(), "a"))
	restore(t, store, want, sessions.RestoredNew)
	requireSame(t, want, peek(t, store, "a"))
	s.clock.advance(9*time.Minute - time.Millisecond)
	require.True(t, isLive(t, store, "a"), "the TTL counts from the restored last use")
	s.clock.advance(time.Millisecond)
	require.False(t, isLive(t, store, "a"))
}

func testRestoreOlder(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	old := s.foreign("a", time.Hour)
	restore(t, store, old, sessions.RestoredNew)
	used := get(t, store, "a")

	newer := old.Clone()
	newer.Version, newer.Data["k"], newer.TTL = 9, raw(`"newer"`), spec.Duration(2*time.Hour)
	restore(t, store, newer, sessions.RestoredOlder)
	want := newer.Clone()
	want.LastAccessed = used.LastAccessed // later than that of the backup
	requireSame(t, want, peek(t, store, "a"))
	requireCount(t, 1, store)

	later := newer.Clone()
	later.Version, later.CreatedAt = 10, later.CreatedAt.Add(-time.Second)
	restore(t, store, later, sessions.RestoredKept)
	requireSame(t, want, peek(t, store, "a"))
	require.NoError(t, store.Delete(t.Context(), "a"))
	fresh := create(t, store, "a", time.Hour)
	restore(t, store, newer, sessions.RestoredKept)
	requireSame(t, fresh, peek(t, store, "a"))
}

func testRestoreExpired(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	expired := s.foreign("a", time.Minute)
	restore(t, store, expired, sessions.RestoredExpired)
	require.False(t, isLive(t, store, "a"))
	kept := create(t, store, "a", time.Hour)
	restore(t, store, expired, sessions.RestoredExpired)
	requireSame(t, kept, peek(t, store, "a"))

	create(t, store, "b", time.Minute)
	s.clock.advance(time.Minute) // b expires, with version 1
	old := s.foreign("b", time.Hour)
	old.CreatedAt = old.CreatedAt.Add(-time.Hour)
	restore(t, store, old, sessions.RestoredNew)
	requireSame(t, old, peek(t, store, "b"))
}

func testRestoreFull(t *testing.T, s *storeEnv) {
	for _, onFull := range []string{spec.OnFullRefuse, spec.OnFullEvict} {
		store := s.store(bounded(2, onFull))
		restore(t, store, s.foreign("a", time.Hour), sessions.RestoredNew)
		create(t, store, "b", time.Minute)
		require.ErrorIs(t, errorOf(restored(t.Context(), store, s.foreign("c", time.Hour))), api.ErrStoreFull)
		require.False(t, isLive(t, store, "c"))
		require.True(t, isLive(t, store, "a"), "a restore evicts nothing")
		newer := s.foreign("a", time.Hour)
		newer.Version++
		restore(t, store, newer, sessions.RestoredOlder)
		s.clock.advance(time.Minute) // b expires
		restore(t, store, s.foreign("c", time.Hour), sessions.RestoredNew)
	}
}

func testRestoreInvalid(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	s.rejectsInvalid(store, func(x *sessions.Session) error { return errorOf(restored(t.Context(), store, x)) },
		map[string]func(*sessions.Session){
			"a version too high": func(x *sessions.Session) { x.Version = 1 << 60 },
			"used in the future": func(x *sessions.Session) { x.LastAccessed = s.clock.read().Add(25 * time.Hour) },
		})
}

func testReplacedDuringUpdate(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	restore(t, store, s.foreign("a", time.Hour), sessions.RestoredNew)
	updated := updateDuring(t, store, "a", func() {
		other := s.foreign("a", time.Hour)
		other.Version, other.Data["restored"] = 20, raw("true")
		restore(t, store, other, sessions.RestoredOlder)
	})
	require.Equal(t, int64(21), updated.Version)
	require.Equal(t, map[string]json.RawMessage{"k": raw(`"v"`), "restored": raw("true"), "n": raw("1")}, updated.Data)

	create(t, store, "b", time.Minute)
	updated = updateDuring(t, store, "b", func() { // with a session of the same id, version and times
		require.NoError(t, store.Delete(t.Context(), "b"))
		_, err := sessions.Create(t.Context(), store,
			&sessions.Session{ID: "b", Data: map[string]json.RawMessage{"new": raw("true")}})
		require.NoError(t, err)
	})
	require.Equal(t, map[string]json.RawMessage{"n": raw("1"), "new": raw("true")}, updated.Data)
}

// Two imports restore several versions of one session while clients change it. No version is ever lower than one that
// was acknowledged before, and the last change of each client is in the store.
func testConcurrentRestores(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	restore(t, store, s.foreign("a", time.Hour), sessions.RestoredNew)
	const writers, each = 4, 20
	for _, err := range concurrently(2*writers, func(i int) error {
		last := int64(0)
		for n := range each {
			if i < writers {
				updated, err := store.Update(t.Context(), "a", setData(fmt.Sprint("w", i), fmt.Sprint(n)))
				if err != nil || updated.Version <= last {
					return fmt.Errorf("%+v after version %d: %w", updated, last, err)
				}
				last = updated.Version
				continue
			}
			old := s.foreign("a", time.Hour)
			old.Version = int64(1 + n%7) // at most the first version
			if did, err := restored(t.Context(), store, old); err != nil || did != sessions.RestoredKept {
				return fmt.Errorf("%s: %w", did, err)
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
	final := peek(t, store, "a")
	require.Equal(t, int64(7+writers*each), final.Version)
	for w := range writers {
		require.Equal(t, fmt.Sprint(each-1), string(final.Data[fmt.Sprint("w", w)]))
	}
}
