package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

func fullRefuses(t *testing.T, s *stage) {
	store := s.store(sessions.Config{Max: 3})
	for _, id := range []string{"a", "b"} {
		create(t, store, id, time.Hour)
	}
	create(t, store, "c", time.Minute)
	_, err := store.Create(t.Context(), &sessions.Session{ID: "d"})
	require.ErrorIs(t, err, api.ErrStoreFull)
	require.False(t, live(t, store, "d"))
	_, err = store.Create(t.Context(), &sessions.Session{ID: "a"})
	require.ErrorIs(t, err, api.ErrSessionExists, "a full store still knows whom it has")
	_, err = store.Update(t.Context(), "a", put("k", "1"))
	require.NoError(t, err)
	s.clock.advance(time.Minute) // c is gone
	create(t, store, "d", time.Hour)
	require.NoError(t, store.Delete(t.Context(), "d"))
	create(t, store, "e", time.Hour)
	_, err = store.Create(t.Context(), &sessions.Session{ID: "f"})
	require.ErrorIs(t, err, api.ErrStoreFull)
}

func fullEvicts(t *testing.T, s *stage) {
	store := s.store(sessions.Config{Max: 3, OnFull: sessions.Evict})
	for _, id := range []string{"a", "b", "c"} {
		create(t, store, id, time.Hour)
		s.clock.advance(time.Minute)
	}
	_, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	s.clock.advance(time.Minute)
	create(t, store, "d", time.Hour)
	require.False(t, live(t, store, "b"), "b was not used for longest")
	s.clock.advance(time.Minute)
	require.NoError(t, store.Touch(t.Context(), "c"))
	_, err = store.Create(t.Context(), &sessions.Session{ID: "a"})
	require.ErrorIs(t, err, api.ErrSessionExists)
	require.True(t, live(t, store, "d"), "nobody makes room for what is there")
	s.clock.advance(time.Minute)
	create(t, store, "e", time.Hour)
	require.False(t, live(t, store, "a"))
	for _, id := range []string{"c", "d", "e"} {
		require.True(t, live(t, store, id), id)
	}
}

func fullRace(t *testing.T, s *stage) {
	const places, creators = 10, 40
	store := s.store(sessions.Config{Max: places})
	outcomes := make(chan error, creators)
	var group sync.WaitGroup
	for i := range creators {
		group.Go(func() {
			_, err := store.Create(t.Context(), &sessions.Session{ID: fmt.Sprint("s", i)})
			outcomes <- err
		})
	}
	group.Wait()
	made := 0
	for range creators {
		if err := <-outcomes; err == nil {
			made++
		} else {
			require.ErrorIs(t, err, api.ErrStoreFull)
		}
	}
	require.Equal(t, places, made)
	count, err := store.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, places, count)
}

func newBounds(t *testing.T, s *stage) {
	store := s.store(sessions.Config{Max: 1})
	var group sync.WaitGroup
	group.Go(func() { store.SetBounds(2, sessions.Refuse) })
	create(t, store, "a", time.Hour)
	_, err := store.Update(t.Context(), "a", put("k", "1"))
	require.NoError(t, err)
	group.Wait()
	s.clock.advance(time.Minute)
	create(t, store, "b", time.Hour)
	_, err = store.Create(t.Context(), &sessions.Session{ID: "c"})
	require.ErrorIs(t, err, api.ErrStoreFull)
	store.SetBounds(2, sessions.Evict)
	create(t, store, "c", time.Hour)
	require.False(t, live(t, store, "a"))
	store.SetBounds(1, sessions.Refuse)
	require.True(t, live(t, store, "b"), "a lower bound drops nobody")
}

func ids(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	for _, id := range []string{"a", strings.Repeat("x", sessions.MaxID), "user:42", "...", "a{b}c%20*?[]\\\"'~", sessions.NewTemporaryID()} {
		create(t, store, id, time.Minute)
		got, err := store.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, id, got.ID)
		require.True(t, live(t, store, id))
		require.NoError(t, store.Delete(t.Context(), id))
	}
	for _, id := range []string{"", strings.Repeat("x", sessions.MaxID+1), "a/b", "a b", "ä", "a\x00", "\n", ".", ".."} {
		invalid := &api.Error{Code: api.CodeInvalid}
		_, err := store.Create(t.Context(), &sessions.Session{ID: id})
		require.ErrorIs(t, err, invalid, "%q", id)
		_, err = store.Get(t.Context(), id)
		require.ErrorIs(t, err, invalid, "%q", id)
		_, err = store.Update(t.Context(), id, put("k", "1"))
		require.ErrorIs(t, err, invalid, "%q", id)
		require.ErrorIs(t, store.Touch(t.Context(), id), invalid, "%q", id)
		require.ErrorIs(t, store.Delete(t.Context(), id), invalid, "%q", id)
	}
}

func values(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	frame, err := (&sessions.Session{Data: map[string]json.RawMessage{"k": raw(`""`)}}).Body()
	require.NoError(t, err)
	most := `"` + strings.Repeat("x", sessions.MaxBody-len(frame)) + `"`
	_, err = store.Create(t.Context(), &sessions.Session{ID: "a", Data: map[string]json.RawMessage{"k": raw(most)}})
	require.NoError(t, err)
	got, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, most, string(got.Data["k"]))
	_, err = store.Update(t.Context(), "a", put("l", "1"))
	require.ErrorIs(t, err, &api.Error{Code: api.CodePayloadTooLarge})
	_, err = store.Create(t.Context(), &sessions.Session{ID: "b", Data: map[string]json.RawMessage{"k": raw(most + " "), "l": raw("1")}})
	require.ErrorIs(t, err, &api.Error{Code: api.CodePayloadTooLarge})
	_, err = store.Create(t.Context(), &sessions.Session{ID: "c", TTL: spec.Duration(sessions.MaxTTL)})
	require.NoError(t, err)
	deep := strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000)
	_, err = store.Update(t.Context(), "c", put("\"\\\u2028", deep))
	require.NoError(t, err)
	got, err = store.Get(t.Context(), "c")
	require.NoError(t, err)
	require.Equal(t, deep, string(got.Data["\"\\\u2028"]))
}

func listed(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	var want []string
	for i := range 25 {
		id := fmt.Sprintf("s%02d", (i*7)%25)
		create(t, store, id, time.Hour)
		want = append(want, fmt.Sprintf("s%02d", i))
	}
	var got []string
	for after := ""; ; {
		page, err := store.List(t.Context(), after, 10)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		require.LessOrEqual(t, len(page), 10)
		for _, session := range page {
			got = append(got, session.ID)
		}
		after = got[len(got)-1]
	}
	require.Equal(t, want, got)
	none, err := store.List(t.Context(), "", 0)
	require.NoError(t, err)
	require.Empty(t, none)
	s.clock.advance(time.Hour - time.Millisecond)
	require.True(t, live(t, store, "s00"))
	s.clock.advance(time.Millisecond)
	require.False(t, live(t, store, "s00"), "being listed is no use")
}

func swept(t *testing.T, s *stage) {
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
	count, err = store.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10, count)
}

func cancelled(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := store.Create(ctx, &sessions.Session{ID: "b"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = store.Update(ctx, "a", put("k", "1"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, store.Delete(ctx, "a"), context.Canceled)
	require.False(t, live(t, store, "b"))
	got, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Empty(t, got.Data)
}

func closed(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Hour)
	require.NoError(t, store.Close())
	_, err := store.Get(t.Context(), "a")
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	_, err = store.Create(t.Context(), &sessions.Session{ID: "b"})
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	_, err = store.Count(t.Context())
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	require.NoError(t, store.Close(), "closing twice is no failure")
}
