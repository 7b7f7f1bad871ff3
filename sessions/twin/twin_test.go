package twin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/sessions/memory"
	"github.com/tempool/tempool/sessions/redis"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/sessions/storetest"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

func nothing() error { return nil }

func TestOneStoreDoesWhatEveryStoreMust(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, config sessions.Config) sessions.Store { return Of(memory.Open(config)) })
}

func TestTwoStoresDoWhatEveryStoreMust(t *testing.T) {
	storetest.Run(t, func(t *testing.T, config sessions.Config) sessions.Store {
		store := Of(memory.Open(config))
		store.Begin(memory.Open(config), false, false)
		return store
	})
}

func TestTwoStoresThatHaveChangedRolesDoWhatEveryStoreMust(t *testing.T) {
	storetest.Run(t, func(t *testing.T, config sessions.Config) sessions.Store {
		store := Of(memory.Open(config))
		store.Begin(memory.Open(config), false, false)
		inStep(t, store)
		_, err := store.Swap(t.Context(), false, nothing)
		require.NoError(t, err)
		return store
	})
}

// inStep waits until a comparison has found both stores equal.
func inStep(t *testing.T, store *Store) {
	t.Helper()
	require.Eventually(t, func() bool { return store.Report().InStep }, patience, 5*time.Millisecond, "%+v", store.Report())
}

// ends are two real stores: a file and a Redis server.
type ends struct {
	server *redistest.Server
	file   *embedded.Store
	redis  *redis.Store
}

func open(t *testing.T) ends {
	t.Helper()
	e := ends{server: redistest.Start(t)}
	var err error
	e.file, err = embedded.Open(embedded.Options{Path: filepath.Join(t.TempDir(), "s.db")})
	require.NoError(t, err)
	e.redis, err = redis.Open(redis.Options{URL: e.server.URL()})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.file.Close())
		require.NoError(t, e.redis.Close())
	})
	return e
}

// requireEqual compares two stores session by session, without a word of Store's own.
func requireEqual(t *testing.T, a, b sessions.Mirror) (count int) {
	t.Helper()
	all := func(store sessions.Mirror) map[string]string {
		listed, err := store.List(t.Context(), "", 100_000)
		require.NoError(t, err)
		found := make(map[string]string, len(listed))
		for _, s := range listed {
			text, err := json.Marshal(s)
			require.NoError(t, err)
			found[s.ID] = string(text)
		}
		return found
	}
	require.Equal(t, all(a), all(b))
	return len(all(a))
}

func TestACopyHasVersionsAndTimesAndDoesWithoutWhatTheSecondStoreHad(t *testing.T) {
	e := open(t)
	for n := range 300 {
		_, err := e.file.Create(t.Context(), &sessions.Session{ID: fmt.Sprint("s", n), TTL: spec.Duration(time.Duration(n+60) * time.Second)})
		require.NoError(t, err)
		if n%3 == 0 {
			_, err = e.file.Update(t.Context(), fmt.Sprint("s", n), add("n"))
			require.NoError(t, err)
		}
	}
	_, err := e.redis.Create(t.Context(), &sessions.Session{ID: "left-over"})
	require.NoError(t, err)
	_, err = e.redis.Create(t.Context(), &sessions.Session{ID: "s7", Data: map[string]json.RawMessage{"other": json.RawMessage("1")}})
	require.NoError(t, err)
	store := Of(e.file)
	store.Begin(e.redis, false, false)
	inStep(t, store)
	require.Equal(t, 300, requireEqual(t, e.file, e.redis))
	report := store.Report()
	require.Equal(t, api.CopyInStep, report.Phase)
	require.Equal(t, 300, report.Compared.Compared)
	require.True(t, report.Compared.Equal())
	released, err := store.End(nothing)
	require.NoError(t, err)
	require.Equal(t, sessions.Mirror(e.redis), released)
	require.Equal(t, api.CopyNone, store.Report().Phase)
}

func add(key string) func(*sessions.Session) error {
	return func(s *sessions.Session) error {
		n, _ := strconv.Atoi(string(s.Data[key]))
		s.Data[key] = json.RawMessage(strconv.Itoa(n + 1))
		return nil
	}
}

// storm has writers count in sessions, and delete, make and read others, until it is ended; it knows what was acknowledged.
type storm struct {
	store  *Store
	counts []atomic.Int64 // acknowledged, by session
	group  sync.WaitGroup
	stop   chan struct{}
	wrong  chan error
}

func rage(store *Store, writers, each int) *storm {
	s := &storm{store: store, counts: make([]atomic.Int64, writers*each), stop: make(chan struct{}), wrong: make(chan error, writers)}
	for w := range writers {
		s.group.Go(func() {
			if err := s.write(w*each, each); err != nil {
				s.wrong <- err
			}
		})
	}
	return s
}

func (s *storm) write(first, each int) error {
	ctx := context.Background()
	for {
		select {
		case <-s.stop:
			return nil
		default:
		}
		n := first + rand.N(each)
		id := fmt.Sprint("count", n)
		switch _, err := s.store.Update(ctx, id, add("n")); {
		case err == nil:
			s.counts[n].Add(1)
		case errors.Is(err, api.ErrSessionNotFound):
			if _, err := s.store.Create(ctx, &sessions.Session{ID: id}); err != nil {
				return err
			}
		default:
			return err
		}
		brief := fmt.Sprint("brief", n)
		if _, err := s.store.Create(ctx, &sessions.Session{ID: brief}); err != nil {
			return err
		}
		if _, err := s.store.Get(ctx, id); err != nil && !errors.Is(err, api.ErrSessionNotFound) {
			return err
		}
		if err := s.store.Delete(ctx, brief); err != nil {
			return err
		}
	}
}

// progress waits until the storm has made some more updates, so that it is known to go on.
func (s *storm) progress(t *testing.T) {
	t.Helper()
	before := s.sum()
	require.Eventually(t, func() bool { return s.sum() > before+50 || len(s.wrong) > 0 }, patience, time.Millisecond)
}

func (s *storm) sum() (sum int64) {
	for n := range s.counts {
		sum += s.counts[n].Load()
	}
	return sum
}

// end stops the storm and requires that a store has each update that was acknowledged, and no other.
func (s *storm) end(t *testing.T, kept sessions.Store) {
	t.Helper()
	close(s.stop)
	s.group.Wait()
	close(s.wrong)
	for err := range s.wrong {
		require.NoError(t, err)
	}
	for n := range s.counts {
		if want := s.counts[n].Load(); want > 0 {
			found, err := kept.Get(t.Context(), fmt.Sprint("count", n))
			require.NoError(t, err)
			require.Equal(t, strconv.FormatInt(want, 10), string(found.Data["n"]), found.ID)
			require.Equal(t, want+1, found.Version)
		}
	}
}

func TestNoUpdateIsLostWhileStoresAreCopiedComparedChangedAndChangedBack(t *testing.T) {
	e := open(t)
	store := Of(e.file)
	s := rage(store, 8, 10)
	s.progress(t)
	store.Begin(e.redis, false, false)
	for turn := range 4 { // to Redis, back, to Redis, back
		inStep(t, store)
		s.progress(t)
		_, err := store.Swap(t.Context(), false, nothing)
		require.NoError(t, err, "turn %d", turn)
		s.progress(t)
		want := api.CopyCutOver
		if turn%2 == 1 {
			want = api.CopyInStep
		}
		require.Eventually(t, func() bool { return store.Report().Phase == want }, patience, 5*time.Millisecond)
	}
	s.end(t, store)
	inStep(t, store)
	require.Eventually(t, func() bool { return store.Report().Pending == 0 }, patience, 5*time.Millisecond)
	require.Positive(t, requireEqual(t, e.file, e.redis))
	released, err := store.End(nothing)
	require.NoError(t, err)
	require.Equal(t, sessions.Mirror(e.redis), released, "the file is the truth again")
}

func TestCallsGoOnWhileTheSecondStoreIsDownAndTheComparisonTells(t *testing.T) {
	e := open(t)
	store := Of(e.file)
	store.Begin(e.redis, false, false)
	s := rage(store, 4, 5)
	s.progress(t)
	inStep(t, store)
	e.server.Kill()
	s.progress(t)
	require.Eventually(t, func() bool { return store.Report().Problem != "" }, patience, 5*time.Millisecond)
	report := store.Report()
	require.False(t, report.InStep)
	require.Equal(t, api.CopyCopying, report.Phase)
	_, err := store.Swap(t.Context(), false, nothing)
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "not in step yet")
	s.progress(t)
	e.server.Restart()
	s.progress(t)
	inStep(t, store)
	_, err = store.Swap(t.Context(), false, nothing)
	require.NoError(t, err)
	s.progress(t)
	s.end(t, e.redis)
	_, err = store.End(nothing)
	require.NoError(t, err)
}

func TestOneCanGoBackThoughTheSecondStoreIsGone(t *testing.T) {
	e := open(t)
	store := Of(e.file)
	store.Begin(e.redis, false, false)
	inStep(t, store)
	_, err := store.Swap(t.Context(), false, nothing)
	require.NoError(t, err)
	_, err = store.Create(t.Context(), &sessions.Session{ID: "a"})
	require.NoError(t, err)
	for range 20 {
		_, err = store.Update(t.Context(), "a", add("n"))
		require.NoError(t, err)
	}
	e.server.Kill()
	_, err = store.Get(t.Context(), "a")
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	lost, err := store.Swap(t.Context(), true, nothing)
	require.NoError(t, err)
	require.Zero(t, lost)
	found, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "20", string(found.Data["n"]))
	_, err = store.End(nothing)
	require.NoError(t, err)
}

func TestWhatCannotBeCommittedChangesNothing(t *testing.T) {
	first, second := memory.Open(sessions.Config{}), memory.Open(sessions.Config{})
	store := Of(first)
	mine := errors.New("the disk is full")
	no := func() error { return mine }
	_, err := store.Swap(t.Context(), false, nothing)
	require.ErrorIs(t, err, api.ErrInvalid)
	_, err = store.End(nothing)
	require.ErrorIs(t, err, api.ErrInvalid)
	store.Begin(second, false, false)
	inStep(t, store)
	_, err = store.Swap(t.Context(), false, no)
	require.ErrorIs(t, err, mine)
	require.Equal(t, api.CopyInStep, store.Report().Phase)
	_, err = store.End(no)
	require.ErrorIs(t, err, mine)
	_, err = store.Create(t.Context(), &sessions.Session{ID: "a"})
	require.NoError(t, err)
	requireEqual(t, first, second)
	require.NoError(t, store.Close())
}

func TestATruthThatLostAllDoesNotEmptyTheOther(t *testing.T) {
	first, second := memory.Open(sessions.Config{}), memory.Open(sessions.Config{})
	_, err := second.Create(t.Context(), &sessions.Session{ID: "a"})
	require.NoError(t, err)
	store := Of(first)
	store.Begin(second, false, true)
	require.Eventually(t, func() bool { return store.Report().Problem != "" }, patience, time.Millisecond)
	require.Contains(t, store.Report().Problem, "left as they are")
	count, err := second.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, count)
	require.NoError(t, store.Close())
}
