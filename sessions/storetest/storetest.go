// Package storetest is what every sessions.Store must do. A store's own test calls Run.
package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// Open makes an empty store for one test; Run closes it.
type Open func(t *testing.T, config sessions.Config) sessions.Store

// RunMirror checks a kind of store that is a sessions.Mirror, beyond Run.
func RunMirror(t *testing.T, open Open) {
	for name, test := range mirrored {
		t.Run(name, func(t *testing.T) { test(t, &stage{t: t, open: open, clock: newClock()}) })
	}
}

// Run checks a kind of store.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(*testing.T, *stage){
		"a created session is found as it was stored":                 created,
		"an id is taken once":                                         taken,
		"updates at one time are all kept":                            updatesAllKept,
		"an update changes what a client may change":                  updateChanges,
		"an update that fails changes nothing":                        updateFails,
		"what a caller does to its session stays with it":             isolation,
		"a session is gone at the moment it expires":                  expiry,
		"using a session extends its life":                            extension,
		"a new life begins with an update of the ttl":                 ttlChanges,
		"a clock set back shortens no life":                           clockBack,
		"what was deleted is gone":                                    deleted,
		"a session made again is another one":                         madeAgain,
		"creators of one id race and one wins":                        createRace,
		"reads and updates race deletion and expiry":                  races,
		"a full store refuses":                                        fullRefuses,
		"a full store evicts what was unused for longest":             fullEvicts,
		"creators race for the last places":                           fullRace,
		"bounds can be changed":                                       newBounds,
		"ids at their limits":                                         ids,
		"values at their limits":                                      values,
		"sessions are listed in the order of their ids, page by page": listed,
		"sweeping removes what has expired":                           swept,
		"an operation that is cancelled does not happen":              cancelled,
		"a closed store says so":                                      closed,
	} {
		t.Run(name, func(t *testing.T) { test(t, &stage{t: t, open: open, clock: newClock()}) })
	}
}

// clock stands still until it is told to move.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(time.Now().UnixMilli())
	return c
}

func (c *clock) read() time.Time         { return time.UnixMilli(c.now.Load()) }
func (c *clock) advance(d time.Duration) { c.now.Add(d.Milliseconds()) }
func (c *clock) set(moment time.Time)    { c.now.Store(moment.UnixMilli()) }

type stage struct {
	t     *testing.T
	open  Open
	clock *clock
}

// store opens one with the stage's clock.
func (s *stage) store(config sessions.Config) sessions.Store {
	config.Now = s.clock.read
	store := s.open(s.t, config)
	s.t.Cleanup(func() { require.NoError(s.t, store.Close()) })
	return store
}

func create(t *testing.T, store sessions.Store, id string, ttl time.Duration) *sessions.Session {
	t.Helper()
	s, err := store.Create(t.Context(), &sessions.Session{ID: id, TTL: spec.Duration(ttl)})
	require.NoError(t, err)
	return s
}

func raw(text string) json.RawMessage { return json.RawMessage(text) }

func put(key, value string) func(*sessions.Session) error {
	return func(s *sessions.Session) error { s.Data[key] = raw(value); return nil }
}

func same(t *testing.T, want, got *sessions.Session) {
	t.Helper()
	a, err := json.Marshal(want)
	require.NoError(t, err)
	b, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(a), string(b))
}

func created(t *testing.T, s *stage) {
	store := s.store(sessions.Config{TTL: 20 * time.Minute})
	made, err := store.Create(t.Context(), &sessions.Session{
		ID: "a", Programs: map[string]json.RawMessage{"p": raw(`{"steps":[1,2]}`)}, Data: map[string]json.RawMessage{"k": raw(`"v <>&"`), "n": raw("null")},
		Metadata: map[string]json.RawMessage{"": raw("12345678901234567890.5")}, Version: 99,
	})
	require.NoError(t, err)
	require.Equal(t, int64(1), made.Version)
	require.Equal(t, s.clock.read().UTC(), made.CreatedAt)
	require.Equal(t, made.CreatedAt, made.LastAccessed)
	require.Equal(t, spec.Duration(20*time.Minute), made.TTL)
	require.Equal(t, raw("12345678901234567890.5"), made.Metadata[""])
	got, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	same(t, made, got)
	empty := create(t, store, "b", time.Second)
	require.NotNil(t, empty.Data)
	require.NotNil(t, empty.Programs)
	require.NotNil(t, empty.Metadata)
	require.Equal(t, spec.Duration(time.Second), empty.TTL)
}

func taken(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Minute)
	_, err := store.Update(t.Context(), "a", put("k", "1"))
	require.NoError(t, err)
	_, err = store.Create(t.Context(), &sessions.Session{ID: "a"})
	require.ErrorIs(t, err, api.ErrSessionExists)
	got, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, raw("1"), got.Data["k"])
	s.clock.advance(time.Minute)
	require.Equal(t, int64(1), create(t, store, "a", time.Minute).Version, "an expired session takes no id")
}

func updatesAllKept(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Hour)
	const writers = 100
	var group sync.WaitGroup
	failures := make(chan error, writers)
	for i := range writers {
		group.Go(func() {
			_, err := store.Update(t.Context(), "a", put(fmt.Sprint("key", i), fmt.Sprint(i)))
			failures <- err
		})
	}
	group.Wait()
	for range writers {
		require.NoError(t, <-failures)
	}
	got, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, got.Data, writers)
	for i := range writers {
		require.Equal(t, raw(fmt.Sprint(i)), got.Data[fmt.Sprint("key", i)])
	}
	require.Equal(t, int64(1+writers), got.Version)
}

func updateChanges(t *testing.T, s *stage) {
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
	same(t, want, updated)
	got, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	same(t, want, got)
	_, err = store.Update(t.Context(), "b", put("k", "1"))
	require.ErrorIs(t, err, api.ErrSessionNotFound)
}

func updateFails(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	made := create(t, store, "a", time.Hour)
	mine := errors.New("mine")
	for name, change := range map[string]struct {
		change func(*sessions.Session) error
		want   error
	}{
		"its own error": {func(x *sessions.Session) error { x.Data["k"] = raw("1"); return mine }, mine},
		"no JSON":       {put("k", "{"), &api.Error{Code: api.CodeInvalid}},
		"no UTF-8":      {put("k", "\"\xff\""), &api.Error{Code: api.CodeInvalid}},
		"too long":      {put("k", `"`+strings.Repeat("x", sessions.MaxBody)+`"`), &api.Error{Code: api.CodePayloadTooLarge}},
		"negative life": {func(x *sessions.Session) error { x.TTL = -1; return nil }, &api.Error{Code: api.CodeInvalid}},
		"endless life":  {func(x *sessions.Session) error { x.TTL = spec.Duration(sessions.MaxTTL + 1); return nil }, &api.Error{Code: api.CodeInvalid}},
	} {
		_, err := store.Update(t.Context(), "a", change.change)
		require.ErrorIs(t, err, change.want, name)
		got, err := store.Get(t.Context(), "a")
		require.NoError(t, err)
		same(t, made, got)
	}
}

func isolation(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	mine := &sessions.Session{ID: "a", Data: map[string]json.RawMessage{"k": raw("1")}}
	made, err := store.Create(t.Context(), mine)
	require.NoError(t, err)
	mine.Data["k"], made.Data["k"] = raw("2"), raw("3")
	got, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, raw("1"), got.Data["k"])
	got.Data["more"] = raw("4")
	updated, err := store.Update(t.Context(), "a", put("u", "5"))
	require.NoError(t, err)
	updated.Data["u"] = raw("6")
	got, err = store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, map[string]json.RawMessage{"k": raw("1"), "u": raw("5")}, got.Data)
}

// live reports whether the session is there for those methods that extend no life, which must agree.
func live(t *testing.T, store sessions.Store, id string) bool {
	t.Helper()
	all, err := store.List(t.Context(), "", 100)
	require.NoError(t, err)
	count, err := store.Count(t.Context())
	require.NoError(t, err)
	require.Len(t, all, count)
	for _, s := range all {
		if s.ID == id {
			return true
		}
	}
	return false
}

func expiry(t *testing.T, s *stage) {
	for name, try := range map[string]func(sessions.Store) error{
		"get":    func(store sessions.Store) error { _, err := store.Get(t.Context(), "a"); return err },
		"update": func(store sessions.Store) error { _, err := store.Update(t.Context(), "a", put("k", "1")); return err },
		"touch":  func(store sessions.Store) error { return store.Touch(t.Context(), "a") },
		"delete": func(store sessions.Store) error { return store.Delete(t.Context(), "a") },
	} {
		store := s.store(sessions.Config{})
		create(t, store, "a", time.Minute)
		create(t, store, "b", time.Hour)
		s.clock.advance(time.Minute - time.Millisecond)
		require.True(t, live(t, store, "a"))
		s.clock.advance(time.Millisecond)
		require.ErrorIs(t, try(store), api.ErrSessionNotFound, name)
		require.False(t, live(t, store, "a"), name)
		require.True(t, live(t, store, "b"), name)
		create(t, store, "a", time.Minute)
		s.clock.advance(time.Minute - time.Millisecond)
		require.NoError(t, try(store), name)
	}
}

func extension(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Minute)
	for range 3 {
		s.clock.advance(time.Minute - time.Millisecond)
		got, err := store.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, s.clock.read().UTC(), got.LastAccessed)
		s.clock.advance(time.Minute - time.Millisecond)
		require.NoError(t, store.Touch(t.Context(), "a"))
		s.clock.advance(time.Minute - time.Millisecond)
		_, err = store.Update(t.Context(), "a", put("k", "1"))
		require.NoError(t, err)
	}
	s.clock.advance(time.Minute)
	require.ErrorIs(t, store.Touch(t.Context(), "a"), api.ErrSessionNotFound)
}

func ttlChanges(t *testing.T, s *stage) {
	store := s.store(sessions.Config{TTL: time.Hour})
	create(t, store, "a", 10*time.Minute)
	set := func(ttl time.Duration) *sessions.Session {
		updated, err := store.Update(t.Context(), "a", func(x *sessions.Session) error { x.TTL = spec.Duration(ttl); return nil })
		require.NoError(t, err)
		return updated
	}
	set(30 * time.Minute)
	s.clock.advance(20 * time.Minute)
	require.Equal(t, spec.Duration(time.Hour), set(0).TTL)
	s.clock.advance(59 * time.Minute)
	require.True(t, live(t, store, "a"))
	set(time.Second)
	s.clock.advance(time.Second)
	require.False(t, live(t, store, "a"))
}

func clockBack(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	made := create(t, store, "a", time.Minute)
	s.clock.set(made.CreatedAt.Add(-time.Hour))
	got, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, made.LastAccessed, got.LastAccessed)
	updated, err := store.Update(t.Context(), "a", put("k", "1"))
	require.NoError(t, err)
	require.Equal(t, made.LastAccessed, updated.LastAccessed)
	s.clock.set(made.CreatedAt.Add(time.Minute - time.Millisecond))
	require.True(t, live(t, store, "a"))
}

func deleted(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Minute)
	require.NoError(t, store.Delete(t.Context(), "a"))
	require.False(t, live(t, store, "a"))
	_, err := store.Get(t.Context(), "a")
	require.ErrorIs(t, err, api.ErrSessionNotFound)
	_, err = store.Update(t.Context(), "a", put("k", "1"))
	require.ErrorIs(t, err, api.ErrSessionNotFound)
	require.ErrorIs(t, store.Touch(t.Context(), "a"), api.ErrSessionNotFound)
	require.ErrorIs(t, store.Delete(t.Context(), "a"), api.ErrSessionNotFound)
}

func madeAgain(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	create(t, store, "a", time.Minute)
	calls := 0
	updated, err := store.Update(t.Context(), "a", func(x *sessions.Session) error {
		if calls++; calls == 1 { // between reading and writing, another takes its place, with the same id, version and moment
			require.NoError(t, store.Delete(t.Context(), "a"))
			_, err := store.Create(t.Context(), &sessions.Session{ID: "a", Data: map[string]json.RawMessage{"new": raw("true")}})
			require.NoError(t, err)
		}
		x.Data["k"] = raw("1")
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[string]json.RawMessage{"k": raw("1"), "new": raw("true")}, updated.Data)
	require.Equal(t, 2, calls)
}

func createRace(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	const creators = 32
	outcomes := make(chan error, creators)
	var group sync.WaitGroup
	for range creators {
		group.Go(func() {
			_, err := store.Create(t.Context(), &sessions.Session{ID: "a"})
			outcomes <- err
		})
	}
	group.Wait()
	won := 0
	for range creators {
		if err := <-outcomes; err == nil {
			won++
		} else {
			require.ErrorIs(t, err, api.ErrSessionExists)
		}
	}
	require.Equal(t, 1, won)
}

func races(t *testing.T, s *stage) {
	store := s.store(sessions.Config{})
	const rounds, rivals = 30, 4
	for round := range rounds {
		id := fmt.Sprint("s", round)
		create(t, store, id, time.Minute)
		var group sync.WaitGroup
		outcomes := make(chan error, 3*rivals)
		start := make(chan struct{})
		for range rivals {
			group.Go(func() { <-start; _, err := store.Get(t.Context(), id); outcomes <- err })
			group.Go(func() { <-start; _, err := store.Update(t.Context(), id, put("k", "1")); outcomes <- err })
			group.Go(func() { <-start; outcomes <- store.Touch(t.Context(), id) })
		}
		group.Go(func() {
			<-start
			if round%2 == 0 {
				s.clock.advance(2 * time.Minute)
			} else if err := store.Delete(t.Context(), id); err != nil {
				outcomes <- err
			}
		})
		close(start)
		group.Wait()
		close(outcomes)
		for err := range outcomes {
			if err != nil {
				require.ErrorIs(t, err, api.ErrSessionNotFound)
			}
		}
		s.clock.advance(2 * time.Minute) // an update may have begun its life anew
		require.False(t, live(t, store, id))
	}
}
