package sessions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

func testCreate(t *testing.T, s *storeEnv) {
	settings := spec.Default().Sessions
	settings.TTL = spec.Duration(20 * time.Minute)
	store := s.store(sessions.Config{Settings: func() spec.Sessions { return settings }})
	made, err := sessions.Create(t.Context(), store, &sessions.Session{
		ID: "a", Programs: map[string]json.RawMessage{"p": raw(`{"steps":[1,2]}`)},
		Data:     map[string]json.RawMessage{"k": raw(`"v <>&"`), "n": raw("null")},
		Metadata: map[string]json.RawMessage{"": raw("12345678901234567890.5")}, Version: 99,
	})
	require.NoError(t, err)
	require.Equal(t, int64(1), made.Version)
	require.Equal(t, s.clock.read().UTC(), made.CreatedAt)
	require.Equal(t, made.CreatedAt, made.LastAccessed)
	require.Equal(t, spec.Duration(20*time.Minute), made.TTL)
	require.Equal(t, raw("12345678901234567890.5"), made.Metadata[""])
	requireSame(t, made, get(t, store, "a"))
	empty := create(t, store, "b", time.Second)
	require.NotNil(t, empty.Data)
	require.NotNil(t, empty.Programs)
	require.NotNil(t, empty.Metadata)
	require.Equal(t, spec.Duration(time.Second), empty.TTL)
}

func testCreateExisting(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Minute)
	update(t, store, "a", "k", "1")
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "a"})), api.ErrSessionExists)
	require.Equal(t, raw("1"), get(t, store, "a").Data["k"])
	s.clock.advance(time.Minute)
	require.Equal(t, int64(1), create(t, store, "a", time.Minute).Version, "an expired session does not occupy its id")
}

func testConcurrentUpdates(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Hour)
	const writers = 100
	for _, err := range concurrently(writers, func(i int) error {
		return errorOf(store.Update(t.Context(), "a", setData(fmt.Sprint("key", i), fmt.Sprint(i))))
	}) {
		require.NoError(t, err)
	}
	got := get(t, store, "a")
	require.Len(t, got.Data, writers)
	for i := range writers {
		require.Equal(t, raw(fmt.Sprint(i)), got.Data[fmt.Sprint("key", i)])
	}
	require.Equal(t, int64(1+writers), got.Version)
}

func testUpdate(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	made := create(t, store, "a", time.Hour)
	s.clock.advance(time.Second)
	updated, err := store.Update(t.Context(), "a", func(x *sessions.Session) error {
		x.Data, x.Programs["p"], x.Metadata = map[string]json.RawMessage{"k": raw("1")}, raw("{}"), nil
		x.ID, x.Version, x.CreatedAt, x.LastAccessed = "b", 50, time.Time{}, time.Time{}
		return nil
	})
	require.NoError(t, err)
	want := made.Clone()
	want.Data["k"], want.Programs["p"], want.Version, want.LastAccessed = raw("1"), raw("{}"), 2, s.clock.read().UTC()
	requireSame(t, want, updated)
	requireSame(t, want, get(t, store, "a"))
	require.ErrorIs(t, errorOf(store.Update(t.Context(), "b", setData("k", "1"))), api.ErrSessionNotFound)
}

func testFailedUpdate(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	made := create(t, store, "a", time.Hour)
	mine := errors.New("mine")
	for name, change := range map[string]struct {
		change func(*sessions.Session) error
		want   error
	}{
		"its own error": {func(x *sessions.Session) error { x.Data["k"] = raw("1"); return mine }, mine},
		"no JSON":       {setData("k", "{"), &api.Error{Code: api.CodeInvalid}},
		"no UTF-8":      {setData("k", "\"\xff\""), &api.Error{Code: api.CodeInvalid}},
		"too long":      {setData("k", `"`+strings.Repeat("x", sessions.MaxBody)+`"`), &api.Error{Code: api.CodePayloadTooLarge}},
		"negative ttl":  {func(x *sessions.Session) error { x.TTL = -1; return nil }, &api.Error{Code: api.CodeInvalid}},
		"ttl too long": {func(x *sessions.Session) error { x.TTL = spec.Duration(sessions.MaxTTL + 1); return nil },
			&api.Error{Code: api.CodeInvalid}},
	} {
		require.ErrorIs(t, errorOf(store.Update(t.Context(), "a", change.change)), change.want, name)
		requireSame(t, made, get(t, store, "a"))
	}
}

func testIsolation(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	mine := &sessions.Session{ID: "a", Data: map[string]json.RawMessage{"k": raw("1")}}
	made, err := sessions.Create(t.Context(), store, mine)
	require.NoError(t, err)
	mine.Data["k"], made.Data["k"] = raw("2"), raw("3")
	got := get(t, store, "a")
	require.Equal(t, raw("1"), got.Data["k"])
	got.Data["more"] = raw("4")
	update(t, store, "a", "u", "5").Data["u"] = raw("6")
	require.Equal(t, map[string]json.RawMessage{"k": raw("1"), "u": raw("5")}, get(t, store, "a").Data)
}

func testDelete(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Minute)
	require.NoError(t, store.Delete(t.Context(), "a"))
	require.False(t, isLive(t, store, "a"))
	require.ErrorIs(t, errorOf(store.Get(t.Context(), "a")), api.ErrSessionNotFound)
	require.ErrorIs(t, errorOf(store.Update(t.Context(), "a", setData("k", "1"))), api.ErrSessionNotFound)
	require.ErrorIs(t, store.Delete(t.Context(), "a"), api.ErrSessionNotFound)
}

func testConcurrentCreates(t *testing.T, s *storeEnv) {
	const max = 10
	store := s.store(bounded(max, spec.OnFullRefuse))
	requireMade(t, 1, api.ErrSessionExists, concurrently(32, func(int) error {
		return errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "a"}))
	}))
	requireMade(t, max-1, api.ErrStoreFull, concurrently(40, func(i int) error {
		return errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: fmt.Sprint("s", i)}))
	}))
	requireCount(t, max, store)
}

// requireMade requires that so many of the creates have succeeded, and why the others have failed.
func requireMade(t *testing.T, want int, otherwise error, errs []error) {
	t.Helper()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else {
			require.ErrorIs(t, err, otherwise)
		}
	}
	require.Equal(t, want, made)
}

func testConcurrentUseAndEnd(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	const rounds, users = 30, 4
	for round := range rounds {
		id := fmt.Sprint("s", round)
		create(t, store, id, time.Minute)
		for _, err := range concurrently(2*users+1, func(i int) error {
			switch {
			case i > users:
				return errorOf(store.Update(t.Context(), id, setData("k", "1")))
			case i > 0:
				return errorOf(store.Get(t.Context(), id))
			case round%2 == 1:
				return store.Delete(t.Context(), id)
			}
			s.clock.advance(2 * time.Minute)
			return nil
		}) {
			if err != nil {
				require.ErrorIs(t, err, api.ErrSessionNotFound)
			}
		}
		s.clock.advance(2 * time.Minute) // an update may have extended the TTL
		require.False(t, isLive(t, store, id))
	}
}

func testList(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	var want []string
	for i := range 25 {
		id := fmt.Sprintf("s%02d", (i*7)%25)
		create(t, store, id, time.Hour)
		want = append(want, fmt.Sprintf("s%02d", i))
	}
	for from, after := range map[int]string{0: "", 11: "s10", 25: "s24"} {
		got := []string{}
		for _, session := range list(t, store, after) {
			got = append(got, session.ID)
		}
		require.Equal(t, want[from:], got)
	}
	s.clock.advance(time.Hour - time.Millisecond)
	require.True(t, isLive(t, store, "s00"))
	s.clock.advance(time.Millisecond)
	require.False(t, isLive(t, store, "s00"), "List does not extend the TTL")
}

func testCancelledContext(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, errorOf(sessions.Create(ctx, store, &sessions.Session{ID: "b"})), context.Canceled)
	require.ErrorIs(t, errorOf(store.Update(ctx, "a", setData("k", "1"))), context.Canceled)
	require.ErrorIs(t, store.Delete(ctx, "a"), context.Canceled)
	require.ErrorIs(t, errorOf(restored(ctx, store, s.foreign("c", time.Hour))), context.Canceled)
	require.False(t, isLive(t, store, "b"))
	require.False(t, isLive(t, store, "c"))
	require.Empty(t, get(t, store, "a").Data)
}

func testClose(t *testing.T, s *storeEnv) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Hour)
	require.NoError(t, store.Close())
	require.ErrorIs(t, errorOf(store.Get(t.Context(), "a")), api.ErrStoreUnavailable)
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "b"})), api.ErrStoreUnavailable)
	require.ErrorIs(t, errorOf(restored(t.Context(), store, s.foreign("b", time.Hour))), api.ErrStoreUnavailable)
	require.ErrorIs(t, errorOf(store.IDs(t.Context())), api.ErrStoreUnavailable)
	require.ErrorIs(t, errorOf(store.Peek(t.Context(), []string{"a"})), api.ErrStoreUnavailable)
	require.ErrorIs(t, errorOf(store.Count(t.Context())), api.ErrStoreUnavailable)
	require.NoError(t, store.Close(), "a second Close does nothing")
}
