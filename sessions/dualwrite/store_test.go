package dualwrite

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
	"github.com/tempool/tempool/sessions/redis"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 3 * time.Minute

func noCommit() error { return nil }

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

// awaitInStep waits until a comparison has found both stores equal.
func awaitInStep(t *testing.T, store *Store) {
	t.Helper()
	require.Eventually(t, func() bool { return store.Status().InSync }, testTimeout, 5*time.Millisecond, "%+v",
		store.Status())
}

// switchUnderLoad switches the roles while sessions are written: one slow write takes the stores out of step for a
// while.
func switchUnderLoad(t *testing.T, store *Store) {
	t.Helper()
	require.Eventually(t, func() bool { return errorOf(store.SwitchRoles(t.Context(), false, noCommit)) == nil },
		testTimeout, 5*time.Millisecond)
}

// realStores are an embedded store and a Redis store.
type realStores struct {
	server *redistest.Server
	file   *embedded.Store
	redis  *redis.Store
}

func openStores(t *testing.T) realStores {
	t.Helper()
	e := realStores{server: redistest.Start(t)}
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

// requireEqual compares two stores session by session, independently of Store's own comparison.
func requireEqual(t *testing.T, a, b sessions.Store) (count int) {
	t.Helper()
	all := func(store sessions.Store) map[string]string {
		found := map[string]string{}
		for s, err := range sessions.List(t.Context(), store, "") {
			require.NoError(t, err)
			text, err := json.Marshal(s)
			require.NoError(t, err)
			found[s.ID] = string(text)
		}
		return found
	}
	require.Equal(t, all(a), all(b))
	return len(all(a))
}

func TestACopyKeepsVersionsAndTimesAndDeletesOtherSessionsFromTheSecondary(t *testing.T) {
	e := openStores(t)
	for n := range 300 {
		_, err := sessions.Create(t.Context(), e.file,
			&sessions.Session{ID: fmt.Sprint("s", n), TTL: spec.Duration(time.Duration(n+60) * time.Second)})
		require.NoError(t, err)
		if n%3 == 0 {
			require.NoError(t, errorOf(e.file.Update(t.Context(), fmt.Sprint("s", n), add("n"))))
		}
	}
	require.NoError(t, errorOf(sessions.Create(t.Context(), e.redis, &sessions.Session{ID: "left-over"})))
	_, err := sessions.Create(t.Context(), e.redis,
		&sessions.Session{ID: "s7", Data: map[string]json.RawMessage{"other": json.RawMessage("1")}})
	require.NoError(t, err)
	store := New(e.file)
	store.StartCopy(e.redis, false)
	awaitInStep(t, store)
	require.Equal(t, 300, requireEqual(t, e.file, e.redis))
	report := store.Status()
	require.Equal(t, api.CopyInSync, report.Phase)
	require.Equal(t, 300, report.Compared.Compared)
	require.True(t, report.Compared.Equal())
	released, err := store.EndCopy(noCommit)
	require.NoError(t, err)
	require.Equal(t, sessions.Store(e.redis), released)
	require.Equal(t, api.CopyNone, store.Status().Phase)
}

func add(key string) func(*sessions.Session) error {
	return func(s *sessions.Session) error {
		n, _ := strconv.Atoi(string(s.Data[key]))
		s.Data[key] = json.RawMessage(strconv.Itoa(n + 1))
		return nil
	}
}

// load runs writers that count in sessions, and create, read and delete others, until it is stopped. It counts
// acknowledged updates.
type load struct {
	store    *Store
	counts   []atomic.Int64 // acknowledged, by session
	group    sync.WaitGroup
	stopped  atomic.Bool
	failures chan error
}

func startLoad(store *Store, writers, each int) *load {
	s := &load{store: store, counts: make([]atomic.Int64, writers*each), failures: make(chan error, writers)}
	for w := range writers {
		s.group.Go(func() {
			if err := s.write(w*each, each); err != nil {
				s.failures <- err
			}
		})
	}
	return s
}

func (s *load) write(first, each int) error {
	ctx := context.Background()
	for !s.stopped.Load() {
		n := first + rand.N(each)
		id := fmt.Sprint("count", n)
		switch _, err := s.store.Update(ctx, id, add("n")); {
		case err == nil:
			s.counts[n].Add(1)
		case errors.Is(err, api.ErrSessionNotFound):
			if _, err := sessions.Create(ctx, s.store, &sessions.Session{ID: id}); err != nil {
				return err
			}
		default:
			return err
		}
		shortLived := fmt.Sprint("shortLived", n)
		if _, err := sessions.Create(ctx, s.store, &sessions.Session{ID: shortLived}); err != nil {
			return err
		}
		if _, err := s.store.Get(ctx, id); err != nil && !errors.Is(err, api.ErrSessionNotFound) {
			return err
		}
		if err := s.store.Delete(ctx, shortLived); err != nil {
			return err
		}
	}
	return nil
}

// awaitProgress waits until the load has made more updates.
func (s *load) awaitProgress(t *testing.T) {
	t.Helper()
	before := s.sum()
	require.Eventually(t, func() bool { return s.sum() > before+50 || len(s.failures) > 0 }, testTimeout, time.Millisecond)
}

func (s *load) sum() (sum int64) {
	for n := range s.counts {
		sum += s.counts[n].Load()
	}
	return sum
}

// stopAndCheck stops the load and requires that a store has exactly the acknowledged updates.
func (s *load) stopAndCheck(t *testing.T, store sessions.Store) {
	t.Helper()
	s.stopped.Store(true)
	s.group.Wait()
	close(s.failures)
	for err := range s.failures {
		require.NoError(t, err)
	}
	for n := range s.counts {
		if want := s.counts[n].Load(); want > 0 {
			found, err := store.Get(t.Context(), fmt.Sprint("count", n))
			require.NoError(t, err)
			require.Equal(t, strconv.FormatInt(want, 10), string(found.Data["n"]), found.ID)
			require.Equal(t, want+1, found.Version)
		}
	}
}

func TestNoUpdateIsLostDuringCopyCompareSwapAndSwapBack(t *testing.T) {
	e := openStores(t)
	store := New(e.file)
	s := startLoad(store, 8, 10)
	s.awaitProgress(t)
	store.StartCopy(e.redis, false)
	for range 4 { // to Redis, back, to Redis, back
		awaitInStep(t, store)
		s.awaitProgress(t)
		switchUnderLoad(t, store)
		s.awaitProgress(t)
	}
	s.stopAndCheck(t, store)
	awaitInStep(t, store)
	require.Eventually(t, func() bool { return store.Status().Pending == 0 }, testTimeout, 5*time.Millisecond)
	require.Positive(t, requireEqual(t, e.file, e.redis))
	released, err := store.EndCopy(noCommit)
	require.NoError(t, err)
	require.Equal(t, sessions.Store(e.redis), released, "the file is the primary again")
}

func TestOperationsContinueWhileTheSecondaryIsDown(t *testing.T) {
	e := openStores(t)
	store := New(e.file)
	store.StartCopy(e.redis, false)
	s := startLoad(store, 4, 5)
	s.awaitProgress(t)
	awaitInStep(t, store)
	e.server.Kill()
	s.awaitProgress(t)
	require.Eventually(t, func() bool { return store.Status().Problem != "" }, testTimeout, 5*time.Millisecond)
	report := store.Status()
	require.False(t, report.InSync)
	require.Equal(t, api.CopyCopying, report.Phase)
	_, err := store.SwitchRoles(t.Context(), false, noCommit)
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "not in sync yet")
	s.awaitProgress(t)
	e.server.Restart()
	s.awaitProgress(t)
	awaitInStep(t, store)
	switchUnderLoad(t, store)
	s.awaitProgress(t)
	s.stopAndCheck(t, e.redis)
	require.NoError(t, errorOf(store.EndCopy(noCommit)))
}

func TestAForcedSwapGoesBackWhenTheNewPrimaryIsDown(t *testing.T) {
	e := openStores(t)
	store := New(e.file)
	store.StartCopy(e.redis, false)
	awaitInStep(t, store)
	require.NoError(t, errorOf(store.SwitchRoles(t.Context(), false, noCommit)))
	require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "a"})))
	for range 20 {
		require.NoError(t, errorOf(store.Update(t.Context(), "a", add("n"))))
	}
	e.server.Kill()
	require.ErrorIs(t, errorOf(store.Get(t.Context(), "a")), api.ErrStoreUnavailable)
	lost, err := store.SwitchRoles(t.Context(), true, noCommit)
	require.NoError(t, err)
	require.Zero(t, lost)
	found, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "20", string(found.Data["n"]))
	require.NoError(t, errorOf(store.EndCopy(noCommit)))
}

func TestAFailedCommitChangesNothing(t *testing.T) {
	first, second := embedded.InMemory(sessions.Config{}), embedded.InMemory(sessions.Config{})
	store := New(first)
	mine := errors.New("the disk is full")
	no := func() error { return mine }
	require.ErrorIs(t, errorOf(store.SwitchRoles(t.Context(), false, noCommit)), api.ErrInvalid)
	require.ErrorIs(t, errorOf(store.EndCopy(noCommit)), api.ErrInvalid)
	store.StartCopy(second, false)
	awaitInStep(t, store)
	require.ErrorIs(t, errorOf(store.SwitchRoles(t.Context(), false, no)), mine)
	require.Equal(t, api.CopyInSync, store.Status().Phase)
	require.ErrorIs(t, errorOf(store.EndCopy(no)), mine)
	require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "a"})))
	requireEqual(t, first, second)
	require.NoError(t, store.Close())
}

// evicted is a store whose index names a session that it has lost, as that of Redis does.
type evicted struct{ sessions.Store }

func (evicted) IDs(context.Context) ([]string, error) { return []string{"a"}, nil }

func TestAnEmptyPrimaryDoesNotEmptyTheSecondary(t *testing.T) {
	for _, first := range []sessions.Store{embedded.InMemory(sessions.Config{}),
		evicted{embedded.InMemory(sessions.Config{})}} {
		second := embedded.InMemory(sessions.Config{})
		require.NoError(t, errorOf(sessions.Create(t.Context(), second, &sessions.Session{ID: "a"})))
		store := New(first)
		store.StartCopy(second, true)
		require.Eventually(t, func() bool { return store.Status().Problem != "" || store.Status().InSync }, testTimeout,
			time.Millisecond)
		require.Contains(t, store.Status().Problem, "left unchanged")
		require.ErrorContains(t, errorOf(store.SwitchRoles(t.Context(), false, nil)), "run --back --force or --cancel")
		count, err := second.Count(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, count)
		require.NoError(t, store.Close())
	}
}
