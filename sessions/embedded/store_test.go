package embedded

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// waitTimeout bounds each wait; only a failing test waits so long.
const waitTimeout = 3 * time.Minute

func TestMain(m *testing.M) {
	if path := os.Getenv(killTestVariable); path != "" {
		writeUntilKilled(path)
	}
	goleak.VerifyTestMain(m)
}

func openStore(t *testing.T, options Options) *Store {
	t.Helper()
	store, err := Open(options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

// settings are the defaults with a change.
func settings(change func(*spec.Sessions)) func() spec.Sessions {
	changed := spec.Default().Sessions
	change(&changed)
	return func() spec.Sessions { return changed }
}

func evictAbove(max int) func(*spec.Sessions) {
	return func(s *spec.Sessions) { s.Max, s.OnFull = max, spec.OnFullEvict }
}

func put(key, value string) func(*sessions.Session) error {
	return func(s *sessions.Session) error { s.Data[key] = json.RawMessage(value); return nil }
}

func TestAReopenedStoreHasTheSameSessions(t *testing.T) {
	for _, sync := range []string{spec.SyncAlways, spec.SyncInterval} {
		now := time.Now()
		options := Options{Path: filepath.Join(t.TempDir(), "deeper", "s.db"), Config: sessions.Config{
			Settings: settings(func(s *spec.Sessions) { evictAbove(3)(s); s.Sync = sync }),
			Now:      func() time.Time { return now }}}
		store := openStore(t, options)
		for _, id := range []string{"a", "b", "c"} {
			require.NoError(t, errorOf(sessions.Create(t.Context(), store,
				&sessions.Session{ID: id, TTL: spec.Duration(time.Hour)})))
			now = now.Add(time.Minute)
		}
		require.NoError(t, errorOf(store.Update(t.Context(), "b", put("k", `{"x":1}`))))
		now = now.Add(time.Second)
		require.NoError(t, errorOf(store.Get(t.Context(), "a")))
		require.NoError(t, store.Delete(t.Context(), "c"))
		want := list(t, store)
		require.NoError(t, store.Close())

		store = openStore(t, options)
		require.Equal(t, want, list(t, store))
		for _, id := range []string{"d", "e"} { // e does not fit, and b is the least recently used one
			require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: id})))
		}
		require.ErrorIs(t, errorOf(store.Get(t.Context(), "b")), api.ErrSessionNotFound)
		now = now.Add(time.Hour)
		require.NoError(t, store.Close())
		store = openStore(t, options)
		count, err := store.Count(t.Context())
		require.NoError(t, err)
		require.Zero(t, count, "sessions expire while the store is closed")
		require.NoError(t, store.Close())
	}
}

func TestAFullStoreKeepsWhatWasUsedSinceTheClockWasSetBack(t *testing.T) {
	now := time.Now()
	store := InMemory(sessions.Config{Settings: settings(evictAbove(2)), Now: func() time.Time { return now }})
	for _, id := range []string{"a", "b", "c", "d"} {
		require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: id})))
		now = now.Add(-time.Hour)
	}
	require.NoError(t, errorOf(store.Get(t.Context(), "c")))
	require.ErrorIs(t, errorOf(store.Get(t.Context(), "b")), api.ErrSessionNotFound)
}

func TestAFileInUseIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	openStore(t, Options{Path: path})
	_, err := Open(Options{Path: path})
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	require.ErrorContains(t, err, "another process has the session store")
}

func TestADirectoryThatCannotBeCreatedIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(Options{Path: filepath.Join(file, "s.db")})
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	require.ErrorContains(t, err, file)
	require.NotContains(t, err.Error(), "damaged")
}

// filledFile makes a file with sessions of many sizes.
func filledFile(t *testing.T) (path string, content []byte) {
	path = filepath.Join(t.TempDir(), "s.db")
	store := openStore(t, Options{Path: path, Config: sessions.Config{
		Settings: settings(func(s *spec.Sessions) { s.Sync = spec.SyncInterval })}})
	for i := range 300 {
		_, err := sessions.Create(t.Context(), store,
			&sessions.Session{ID: fmt.Sprint("s", i),
				Data: map[string]json.RawMessage{"k": json.RawMessage(fmt.Sprintf(`"%0*d"`, i*7, i))}})
		require.NoError(t, err)
	}
	require.NoError(t, store.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return path, content
}

func TestATruncatedFileIsReported(t *testing.T) {
	path, content := filledFile(t)
	for _, length := range []int{1, 100, 4096, 8192, 12288, 16384, 20000, 32768, len(content) / 8} {
		require.NoError(t, os.WriteFile(path, content[:length], 0o600))
		_, err := Open(Options{Path: path})
		require.ErrorIs(t, err, api.ErrStoreUnavailable, "%d bytes", length)
		require.ErrorContains(t, err, path+" is damaged: restore a backup", "%d bytes", length)
	}
}

// Damage either makes Open fail, or hits unused bytes and every session is intact.
func TestADamagedFileIsReportedOrHarmless(t *testing.T) {
	path, content := filledFile(t)
	reported := 0
	// The first two pages hold the last two transactions; a crash may damage one of them, so they are left out.
	for page := 2; page < len(content)/4096; page += 11 {
		damaged := append([]byte{}, content...)
		for i := range 400 {
			damaged[page*4096+i*10] ^= 0x55
		}
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		store, err := Open(Options{Path: path})
		if err != nil {
			require.ErrorContains(t, err, "is damaged", "page %d", page)
			reported++
			continue
		}
		count, err := store.Count(t.Context())
		require.NoError(t, err)
		require.Equal(t, 300, count, "page %d", page)
		for i := range 300 {
			s, err := store.Get(t.Context(), fmt.Sprint("s", i))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf(`"%0*d"`, i*7, i), string(s.Data["k"]))
		}
		require.NoError(t, store.Close())
	}
	require.Greater(t, reported, 5, "most pages are in use")
}

func TestConcurrentWritersShareCommits(t *testing.T) {
	store := openStore(t, Options{Path: filepath.Join(t.TempDir(), "s.db")})
	const writers = 64
	busy, err := store.db.Begin(true) // the first commit waits until all writers have begun
	require.NoError(t, err)
	failures := make(chan error, writers)
	for i := range writers {
		go func() {
			failures <- errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: fmt.Sprint(i)}))
		}()
	}
	require.Eventually(t, func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		begun := len(store.next.records)
		if store.current != nil {
			begun += len(store.current.records)
		}
		return begun == writers
	}, waitTimeout, time.Millisecond)
	before := busy.ID() // that of the first commit, too
	require.NoError(t, busy.Rollback())
	for range writers {
		require.NoError(t, <-failures)
	}
	require.NoError(t, store.db.View(func(tx *bbolt.Tx) error {
		require.LessOrEqual(t, tx.ID()-before, 1, "a second commit must do for all but the first writers")
		return nil
	}))
	count, err := store.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, writers, count)
}

func TestAUseIsWrittenOnlyOnceASixtiethOfTheTTLHasPassed(t *testing.T) {
	now := time.Now()
	path := filepath.Join(t.TempDir(), "s.db")
	options := Options{Path: path, Config: sessions.Config{Now: func() time.Time { return now }}}
	store := openStore(t, options)
	require.NoError(t, errorOf(sessions.Create(t.Context(), store,
		&sessions.Session{ID: "a", TTL: spec.Duration(time.Hour)})))
	pendingUses := func() int {
		store.mu.Lock()
		defer store.mu.Unlock()
		n := len(store.next.uses)
		if store.current != nil {
			n += len(store.current.uses)
		}
		return n
	}
	for range 59 {
		now = now.Add(time.Second)
		require.NoError(t, errorOf(store.Get(t.Context(), "a")))
		require.Zero(t, pendingUses())
	}
	now = now.Add(time.Second)
	used := now
	disk, err := store.db.Begin(true) // the file's only writer for now
	require.NoError(t, err)
	defer func() { _ = disk.Rollback() }() // after a failure, or the store's Close would wait for it
	require.NoError(t, errorOf(store.Get(t.Context(), "a")))
	require.Eventually(t, func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.current != nil && len(store.current.uses) == 1 && time.Since(store.current.began) < waitTimeout
	}, waitTimeout, time.Millisecond, "else a write with sync = interval would wait for the disk")
	require.NoError(t, disk.Rollback())
	// A copy of the file is what a crash at this moment leaves.
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		crashed := filepath.Join(t.TempDir(), "s.db")
		require.NoError(t, os.WriteFile(crashed, content, 0o600))
		left, err := Open(Options{Path: crashed, Config: options.Config})
		if err != nil {
			return false // copied in the middle of a commit
		}
		all := list(t, left)
		require.NoError(t, left.Close())
		return len(all) == 1 && all[0].LastAccessed.Equal(used.UTC().Truncate(time.Millisecond))
	}, waitTimeout, 10*time.Millisecond)
}

// list collects what List yields.
func list(t *testing.T, store *Store) (all []*sessions.Session) {
	t.Helper()
	for session, err := range sessions.List(t.Context(), store, "") {
		require.NoError(t, err)
		all = append(all, session)
	}
	return all
}

// A file size limit stands in for a full disk.
func TestAStoreThatCannotWriteRejectsWritesAndRecovers(t *testing.T) {
	if !inChild(t) {
		return
	}
	for _, sync := range []string{spec.SyncAlways, spec.SyncInterval} {
		t.Run(string(sync), func(t *testing.T) { testFullDisk(t, sync) })
	}
}

func testFullDisk(t *testing.T, sync string) {
	path := filepath.Join(t.TempDir(), "s.db")
	store := openStore(t, Options{Path: path, Config: sessions.Config{
		Settings: settings(func(s *spec.Sessions) { s.Sync = sync })}})
	require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "a"})))

	lift := limitFileSize(t, 1<<20)
	defer lift()
	long := `"` + strings.Repeat("x", sessions.MaxBody/2) + `"`
	var writeErr error
	require.Eventually(t, func() bool { // with SyncInterval, the first one may be acknowledged before it is written
		_, writeErr = store.Update(t.Context(), "a", put("k", long))
		return writeErr != nil
	}, waitTimeout, time.Millisecond)
	require.ErrorIs(t, writeErr, api.ErrStoreUnavailable)
	require.ErrorContains(t, writeErr, "cannot write its file")
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "b"})), api.ErrStoreUnavailable)
	require.ErrorIs(t, store.Delete(t.Context(), "a"), api.ErrStoreUnavailable)
	require.NoError(t, errorOf(store.Get(t.Context(), "a")), "reads still succeed")

	lift()
	require.Eventually(t, func() bool {
		_, err := store.Update(t.Context(), "a", put("k", "2"))
		return err == nil
	}, waitTimeout, 10*time.Millisecond, "writes succeed again")
	require.NoError(t, store.Close())
	store = openStore(t, Options{Path: path})
	s, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "2", string(s.Data["k"]))
	count, err := store.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, count)
}

func TestACopiedSessionSurvivesAReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	store := openStore(t, Options{Path: path})
	for range 2 { // replaces a session with a later use, which the file has too
		require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "a"})))
		require.NoError(t, errorOf(store.Get(t.Context(), "a")))
		require.NoError(t, store.Close())
		store = openStore(t, Options{Path: path})
		past := time.Now().UTC().Truncate(time.Millisecond).Add(-time.Minute)
		want := &sessions.Session{ID: "a", Version: 5, CreatedAt: past, LastAccessed: past, TTL: spec.Duration(time.Hour)}
		_, _, err := store.Put(t.Context(), want, sessions.ToCopy)
		require.NoError(t, err)
		require.NoError(t, store.Close())
		store = openStore(t, Options{Path: path})
		got, err := store.Peek(t.Context(), []string{"a"})
		require.NoError(t, err)
		require.True(t, sessions.Equal(want, got[0]), "%+v", got[0])
		require.NoError(t, store.Delete(t.Context(), "a"))
	}
}

func TestAFileThatCouldNotBeCreatedIsCreatedWhenTheDiskHasSpaceAgain(t *testing.T) {
	if !inChild(t) {
		return
	}
	options := Options{Path: filepath.Join(t.TempDir(), "s.db")}
	for _, space := range []uint64{0, 4096, 8192, 12288} {
		lift := limitFileSize(t, space)
		_, err := Open(options)
		lift()
		require.ErrorIs(t, err, api.ErrStoreUnavailable, "%d bytes", space)
		require.ErrorContains(t, err, "has space", "%d bytes", space)
	}
	require.NoError(t, errorOf(sessions.Create(t.Context(), openStore(t, options), &sessions.Session{ID: "a"})))
}

// inChild runs the test in a process of its own, where it returns true: the limit must not meet go test's own files.
func inChild(t *testing.T) bool {
	t.Helper()
	const variable = "TEMPOOL_FULL_DISK_TEST"
	if os.Getenv(variable) != "" {
		return true
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"=1")
	output, err := child.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return false
}

// limitFileSize stands in for a full disk, until lift.
func limitFileSize(t *testing.T, bytes uint64) (lift func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	full := before
	full.Cur = bytes
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &full))
	return func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before)) }
}
