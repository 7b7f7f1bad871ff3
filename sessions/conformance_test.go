package sessions_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/dualwrite"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/sessions/redis"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openFunc opens an empty store for one test, which closes it.
type openFunc func(t *testing.T, config sessions.Config) sessions.Store

// A new kind of store belongs here.
func TestEveryStoreConforms(t *testing.T) {
	for name, open := range map[string]openFunc{
		"memory":                  openMemory,
		"embedded, sync always":   embeddedOpener(spec.SyncAlways),
		"embedded, sync interval": embeddedOpener(spec.SyncInterval),
	} {
		t.Run(name, func(t *testing.T) { conforms(t, open) })
	}
	t.Run("one Redis server", func(t *testing.T) { conforms(t, redisOpener(redistest.Start(t).URL()+"/1")) })
	t.Run("a Redis cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t)
		conforms(t, redisOpener(cluster.URL()+"?addr="+cluster.Address()))
	})
}

func conforms(t *testing.T, open openFunc) {
	run(t, open, storeTests)
	run(t, open, replicaTests)
}

func TestADualWriteConforms(t *testing.T) {
	for name, open := range map[string]func(*testing.T, *dualwrite.Store, sessions.Config){
		"without a copy": func(*testing.T, *dualwrite.Store, sessions.Config) {},
		"during a copy":  startCopy,
		"after a switch of roles": func(t *testing.T, store *dualwrite.Store, config sessions.Config) {
			startCopy(t, store, config)
			require.Eventually(t, func() bool { return store.Status().InSync }, time.Minute, 5*time.Millisecond, "%+v",
				store.Status())
			require.NoError(t, errorOf(store.SwitchRoles(t.Context(), false, func() error { return nil })))
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, config sessions.Config) sessions.Store {
				store := dualwrite.New(embedded.InMemory(config))
				open(t, store, config)
				return store
			}, storeTests)
		})
	}
}

func startCopy(_ *testing.T, store *dualwrite.Store, config sessions.Config) {
	store.StartCopy(embedded.InMemory(config), false)
}

func openMemory(_ *testing.T, config sessions.Config) sessions.Store {
	return embedded.InMemory(config)
}

func embeddedOpener(sync string) openFunc {
	return func(t *testing.T, config sessions.Config) sessions.Store {
		settings := config.WithDefaults().Settings
		config.Settings = func() spec.Sessions {
			s := settings()
			s.Sync = sync
			return s
		}
		store, err := embedded.Open(embedded.Options{Config: config, Path: filepath.Join(t.TempDir(), "s.db")})
		require.NoError(t, err)
		return store
	}
}

// redisOpener opens stores on one server, each with a prefix of its own.
func redisOpener(url string) openFunc {
	var stores atomic.Int64
	return func(t *testing.T, config sessions.Config) sessions.Store {
		store, err := redis.Open(redis.Options{URL: url, Config: config, Prefix: fmt.Sprint("test", stores.Add(1), ":")})
		require.NoError(t, err)
		return store
	}
}

// storeTests apply to every store.
var storeTests = map[string]func(*testing.T, *storeEnv){
	"Create stores a session with the given content":         testCreate,
	"Create fails for an id in use":                          testCreateExisting,
	"Concurrent updates are all applied":                     testConcurrentUpdates,
	"Update changes only what clients may change":            testUpdate,
	"A failed update changes nothing":                        testFailedUpdate,
	"Changing a returned session does not change the store":  testIsolation,
	"A session expires at the exact millisecond":             testExpiry,
	"Get and Update extend the TTL":                          testUseExtendsTTL,
	"Changing the ttl restarts it":                           testTTLChange,
	"A clock that goes back shortens no TTL":                 testClockGoesBack,
	"A deleted session does not exist":                       testDelete,
	"Concurrent creates make an id once, and at most Max":    testConcurrentCreates,
	"Concurrent Delete or expiry ends every other operation": testConcurrentUseAndEnd,
	"A full store refuses to create":                         testFullRefuses,
	"A full store evicts the least recently used session":    testFullEvicts,
	"A store follows its settings":                           testFollowsSettings,
	"Ids at their limits":                                    testIDs,
	"Values at their limits":                                 testValueLimits,
	"List pages through sessions ordered by id":              testList,
	"DeleteExpired counts expired sessions once":             testDeleteExpired,
	"A cancelled operation changes nothing":                  testCancelledContext,
	"A closed store fails every operation":                   testClose,
	"Peek and IDs do not extend the TTL":                     testPeek,
	"Restore stores a session that does not exist as it was": testRestore,
	"Restore replaces an older session only":                 testRestoreOlder,
	"Restore leaves out an expired session":                  testRestoreExpired,
	"Restore at the limit evicts nothing":                    testRestoreFull,
	"Restore rejects what no store can have created":         testRestoreInvalid,
	"Update detects a session replaced meanwhile":            testReplacedDuringUpdate,
	"Concurrent restores undo no update":                     testConcurrentRestores,
}

// replicaTests apply to every sessions.Store, besides storeTests.
var replicaTests = map[string]func(*testing.T, *storeEnv){
	"It reports what it expires and evicts":                testReportsWhatItRemoves,
	"Put stores an exact copy":                             testPut,
	"Put replaces a session of the same id":                testPutReplaces,
	"Putting an expired session deletes the one of its id": testPutExpired,
	"Put ignores Max":                                      testPutIgnoresMax,
	"Put keeps the order of last use":                      testPutKeepsLRUOrder,
	"Put rejects a session that no store can have created": testPutInvalid,
	"Update detects a session put meanwhile":               testPutDuringUpdate,
	"Concurrent puts are all stored":                       testConcurrentPuts,
}

func run(t *testing.T, open openFunc, tests map[string]func(*testing.T, *storeEnv)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, &storeEnv{t: t, open: open, clock: newClock()}) })
	}
}

// clock stands still until the test moves it.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(time.Now().UnixMilli())
	return c
}

func (c *clock) read() time.Time { return time.UnixMilli(c.now.Load()) }

func (c *clock) advance(d time.Duration) { c.now.Add(d.Milliseconds()) }

func (c *clock) set(moment time.Time) { c.now.Store(moment.UnixMilli()) }

// storeEnv is what one test needs: a way to open stores, and their clock.
type storeEnv struct {
	t     *testing.T
	open  openFunc
	clock *clock
}

// store opens a store with the test's clock.
func (s *storeEnv) store(config sessions.Config) sessions.Store {
	config.Now = s.clock.read
	store := s.open(s.t, config)
	s.t.Cleanup(func() { require.NoError(s.t, store.Close()) })
	return store
}

// bounded are the default settings with other bounds.
func bounded(max int, onFull string) sessions.Config {
	settings := spec.Default().Sessions
	settings.Max, settings.OnFull = max, onFull
	return sessions.Config{Settings: func() spec.Sessions { return settings }}
}

func create(t *testing.T, store sessions.Store, id string, ttl time.Duration) *sessions.Session {
	t.Helper()
	s, err := sessions.Create(t.Context(), store, &sessions.Session{ID: id, TTL: spec.Duration(ttl)})
	require.NoError(t, err)
	return s
}

func get(t *testing.T, store sessions.Store, id string) *sessions.Session {
	t.Helper()
	session, err := store.Get(t.Context(), id)
	require.NoError(t, err)
	return session
}

func update(t *testing.T, store sessions.Store, id, key, value string) *sessions.Session {
	t.Helper()
	session, err := store.Update(t.Context(), id, setData(key, value))
	require.NoError(t, err)
	return session
}

func idsOf(t *testing.T, store sessions.Store) []string {
	t.Helper()
	ids, err := store.IDs(t.Context())
	require.NoError(t, err)
	return ids
}

// list collects what List yields.
func list(t *testing.T, store sessions.Store, after string) (all []*sessions.Session) {
	t.Helper()
	for session, err := range sessions.List(t.Context(), store, after) {
		require.NoError(t, err)
		all = append(all, session)
	}
	return all
}

// concurrently calls a function n times at once, and returns the errors.
func concurrently(n int, do func(i int) error) []error {
	errs := make([]error, n)
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range errs {
		group.Go(func() { <-start; errs[i] = do(i) })
	}
	close(start)
	group.Wait()
	return errs
}

// updateDuring updates a session, to which something happens between the first read and its write.
func updateDuring(t *testing.T, store sessions.Store, id string, meanwhile func()) *sessions.Session {
	t.Helper()
	calls := 0
	updated, err := store.Update(t.Context(), id, func(x *sessions.Session) error {
		if calls++; calls == 1 {
			meanwhile()
		}
		x.Data["n"] = raw("1")
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	return updated
}

// rejectsInvalid requires that a store takes no session that no store can have created.
func (s *storeEnv) rejectsInvalid(store sessions.Store, take func(*sessions.Session) error,
	more map[string]func(*sessions.Session)) {
	invalid := map[string]func(*sessions.Session){
		"a bad id":                   func(x *sessions.Session) { x.ID = "a/b" },
		"no version":                 func(x *sessions.Session) { x.Version = 0 },
		"no creation time":           func(x *sessions.Session) { x.CreatedAt = time.Time{} },
		"used before it was created": func(x *sessions.Session) { x.LastAccessed = x.CreatedAt.Add(-time.Second) },
		"a ttl that is none":         func(x *sessions.Session) { x.TTL = -1 },
		"a value, not JSON":          func(x *sessions.Session) { x.Data["k"] = raw("{") },
	}
	maps.Copy(invalid, more)
	for name, corrupt := range invalid {
		session := s.foreign("a", time.Hour)
		corrupt(session)
		require.ErrorIs(s.t, take(session), api.ErrInvalid, name)
	}
	session := s.foreign("a", time.Hour)
	session.Data["k"] = raw(`"` + strings.Repeat("x", sessions.MaxBody) + `"`)
	require.ErrorIs(s.t, take(session), api.ErrPayloadTooLarge)
	require.False(s.t, isLive(s.t, store, "a"))
}

func raw(text string) json.RawMessage { return json.RawMessage(text) }

func setData(key, value string) func(*sessions.Session) error {
	return func(s *sessions.Session) error { s.Data[key] = raw(value); return nil }
}

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

func copyTo(t *testing.T, store sessions.Store, s *sessions.Session) error {
	_, _, err := store.Put(t.Context(), s, sessions.ToCopy)
	return err
}

func requireSame(t *testing.T, want, got *sessions.Session) {
	t.Helper()
	a, err := json.Marshal(want)
	require.NoError(t, err)
	b, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(a), string(b))
}

func requireCount(t *testing.T, want int, store sessions.Store) {
	t.Helper()
	count, err := store.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, count)
}

// isLive reports whether List contains the session, and requires that Count agrees with List.
func isLive(t *testing.T, store sessions.Store, id string) bool {
	t.Helper()
	all := list(t, store, "")
	requireCount(t, len(all), store)
	for _, s := range all {
		if s.ID == id {
			return true
		}
	}
	return false
}
