package redis

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
)

func TestWhatIsRememberedOfASessionIsNeverTakenForWhatItIs(t *testing.T) {
	server := redistest.Start(t)
	here, there := start(t, Options{URL: server.URL()}), start(t, Options{URL: server.URL()})
	_, err := here.Create(t.Context(), &sessions.Session{ID: "a"})
	require.NoError(t, err)
	for range 2 { // the second time it is remembered
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
	require.NoError(t, err, "a change that fails on an outdated session is made on the stored one")
	require.Equal(t, []int64{1, 2}, seen)
	require.Equal(t, map[string]json.RawMessage{"theirs": json.RawMessage("1")}, updated.Data)

	_, err = there.Update(t.Context(), "a", func(s *sessions.Session) error { s.Data["more"] = json.RawMessage("2"); return nil })
	require.NoError(t, err)
	got, err := here.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, got.Data, 2)
	require.NoError(t, there.Delete(t.Context(), "a"))
	_, err = here.Update(t.Context(), "a", func(*sessions.Session) error { return nil })
	require.ErrorContains(t, err, "there is no session a")
}

func TestLittleIsRemembered(t *testing.T) {
	r := newRecent()
	of := func(n int) record { return record{&sessions.Session{ID: fmt.Sprint(n)}, fmt.Sprint("word", n)} }
	r.keep(of(0), recentOne+1)
	require.Empty(t, r.find("0").word, "what is large is not remembered")
	const many = 2 * recentBytes / recentOne
	for n := range many {
		r.keep(of(n), recentOne)
		r.keep(of(n), recentOne)
		require.Equal(t, "word0", r.find("0").word, "what is used stays")
		require.LessOrEqual(t, r.bytes, recentBytes)
	}
	require.Equal(t, len(r.byID), r.order.Len())
	require.Empty(t, r.find("1").word)
	found, known := r.take(fmt.Sprint(many - 1))
	require.True(t, known)
	require.Equal(t, fmt.Sprint("word", many-1), found.word)
	_, known = r.take(fmt.Sprint(many - 1))
	require.False(t, known)
	for n := range many {
		r.take(fmt.Sprint(n))
	}
	require.Zero(t, r.bytes)
}
