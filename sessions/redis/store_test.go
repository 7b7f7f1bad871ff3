package redis

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// waitTimeout bounds each wait; only a failing test waits so long.
const waitTimeout = 3 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t *testing.T, options Options) *Store {
	t.Helper()
	store, err := Open(options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

func increment(t *testing.T, store *Store, id string) (n int, err error) {
	_, err = store.Update(t.Context(), id, func(s *sessions.Session) error {
		n, _ = strconv.Atoi(string(s.Data["n"]))
		n++
		s.Data["n"] = json.RawMessage(strconv.Itoa(n))
		return nil
	})
	return n, err
}

func TestTheServerExpiresASession(t *testing.T) {
	store := openStore(t, Options{URL: redistest.Start(t).URL()})
	_, err := sessions.Create(t.Context(), store, &sessions.Session{ID: "a", TTL: spec.Duration(50 * time.Millisecond)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return store.client.Exists(t.Context(), store.key("a")...).Val() == 0
	}, waitTimeout, 10*time.Millisecond)
	swept, err := store.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, swept)
}

func TestADuplicatedScriptWritesOnce(t *testing.T) {
	store := openStore(t, Options{URL: redistest.Start(t).URL()})
	now := time.Now().UnixMilli()
	for range 2 {
		answer, err := putScript.Run(t.Context(), store.client, store.key("a"), now, 1, "first", "{}", now, now, 60_000,
			"create").Slice()
		require.NoError(t, err)
		require.Equal(t, []any{"created", now}, answer)
	}
	for range 2 {
		accessed, err := swapScript.Run(t.Context(), store.client, store.key("a"), now, "first", "second", 2, "{}", now,
			60_000).Int64()
		require.NoError(t, err)
		require.Equal(t, now, accessed)
	}
	s, err := store.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, int64(2), s.Version)
}

func TestAReviewRemovesAStaleIndexEntry(t *testing.T) {
	now, settings := time.Now(), spec.Default().Sessions
	settings.Max = 1
	store := openStore(t, Options{URL: redistest.Start(t).URL(), Config: sessions.Config{
		Settings: func() spec.Sessions { return settings }, Now: func() time.Time { return now }}})
	require.NoError(t, errorOf(sessions.Create(t.Context(), store,
		&sessions.Session{ID: "a", TTL: spec.Duration(sessions.MaxTTL)})))
	// as a crash halfway through a delete leaves it
	require.NoError(t, store.client.Del(t.Context(), store.key("a")...).Err())
	require.ErrorIs(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "b"})), api.ErrStoreFull)
	now = now.Add(reviewAfter)
	require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: "b"})))
}

func TestWritersContinueAfterTheServerWasKilled(t *testing.T) {
	const writers, kills = 8, 3
	server := redistest.Start(t)
	store := openStore(t, Options{URL: server.URL()})
	for w := range writers {
		require.NoError(t, errorOf(sessions.Create(t.Context(), store, &sessions.Session{ID: strconv.Itoa(w)})))
	}
	var stop atomic.Bool
	var group sync.WaitGroup
	var acknowledged, failed [writers]atomic.Int64
	problems := make(chan string, writers)
	for w := range writers {
		group.Go(func() {
			for !stop.Load() {
				n, err := increment(t, store, strconv.Itoa(w))
				switch {
				case err == nil && int64(n) > acknowledged[w].Load():
					acknowledged[w].Store(int64(n))
				case api.CodeOf(err) == api.CodeStoreUnavailable:
					failed[w].Add(1)
				default:
					problems <- fmt.Sprintf("writer %d: %d after %d: %v", w, n, acknowledged[w].Load(), err)
					return
				}
			}
		})
	}
	awaitProgress := func(of *[writers]atomic.Int64) {
		t.Helper()
		var before [writers]int64
		for w := range writers {
			before[w] = of[w].Load()
		}
		require.Eventually(t, func() bool {
			for w := range writers {
				if of[w].Load() <= before[w] {
					return len(problems) > 0
				}
			}
			return true
		}, waitTimeout, 5*time.Millisecond)
	}
	t.Cleanup(func() { stop.Store(true); group.Wait() })
	for range kills {
		awaitProgress(&acknowledged)
		server.Kill()
		awaitProgress(&failed)
		server.Restart()
	}
	awaitProgress(&acknowledged)
	stop.Store(true)
	group.Wait()
	close(problems)
	for problem := range problems {
		require.Fail(t, problem)
	}
	for w := range writers {
		s, err := store.Get(t.Context(), strconv.Itoa(w))
		require.NoError(t, err)
		n, err := strconv.ParseInt(string(s.Data["n"]), 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, acknowledged[w].Load())
	}
}

func TestAnOperationTimesOutIfTheServerDoesNotAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, nothing answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	store := openStore(t, Options{URL: "redis://" + silent.Addr().String()})
	require.ErrorIs(t, errorOf(store.Get(t.Context(), "a")), api.ErrStoreUnavailable)
}

func TestAMalformedURLIsRejected(t *testing.T) {
	for _, url := range []string{
		"", "http://localhost", "redis://localhost/x", "localhost:6379", "redis://localhost?addr=%",
		"redis://me:s3cret@localhost:port", "redis://s3cret@localhost:port",
		"redis://me:s3cret", "redis://s3c ret@localhost", "s3cret://localhost", "redis://localhost?password=s3cret",
		"redis://localhost/0?s3cret=1", "redis://:s3cret%zz@localhost",
	} {
		_, err := Open(Options{URL: url})
		require.ErrorIs(t, err, &api.Error{Code: api.CodeInvalid}, url)
		require.NotContains(t, err.Error(), "s3c", url)
	}
}

func TestAnUnreachableServerIsNamedWithoutItsSecret(t *testing.T) {
	for _, address := range []string{"s3cret@127.0.0.1:1", ":s3cret@127.0.0.1:1", "s3cret:@127.0.0.1:1?addr=127.0.0.1:1"} {
		store := openStore(t, Options{URL: "redis://" + address})
		_, err := store.Get(t.Context(), "a")
		require.ErrorIs(t, err, api.ErrStoreUnavailable)
		require.ErrorContains(t, err, "127.0.0.1:1")
		require.NotContains(t, err.Error(), "s3cret")
	}
}
