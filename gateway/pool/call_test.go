package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tempool/tempool/api"
)

// result is the end of a call.
type result struct {
	answer *Response
	err    error
}

// call makes a call in the background.
func (e *env) call(ctx context.Context, method, body string) <-chan result {
	done := make(chan result, 1)
	go func() {
		answer, err := e.dispatcher.CallPool(ctx, "p", Request{Method: method, Body: []byte(body)})
		done <- result{answer, err}
	}()
	return done
}

func (e *env) await(from <-chan result) result {
	e.t.Helper()
	select {
	case r := <-from:
		return r
	case <-time.After(timeout):
		require.FailNow(e.t, "a call has not ended")
		panic("unreachable")
	}
}

// queued makes a call in the background and waits until it is the last of so many in the queue.
func (e *env) queued(ctx context.Context, n int, method, body string) <-chan result {
	e.t.Helper()
	done := e.call(ctx, method, body)
	require.Eventually(e.t, func() bool {
		p := e.dispatcher.knownPool("p")
		return p != nil && locked(p, p.queue.Len) == n
	}, timeout, poll)
	return done
}

func (e *env) file(name string) string { return filepath.Join(e.t.TempDir(), name) }

// awaitBegan waits until a call of hold or stubborn runs.
func (e *env) awaitBegan(path string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { _, err := os.Stat(path + ".began"); return err == nil }, timeout, poll)
}

func (e *env) letGo(path string) { require.NoError(e.t, os.WriteFile(path, nil, 0o600)) }

// TestNoCallIsLostOrMadeTwiceWhileWorkersAreKilled: a call that fails as not started was never made, and no call is
// made twice.
func TestNoCallIsLostOrMadeTwiceWhileWorkersAreKilled(t *testing.T) {
	e := newEnv(t)
	record := e.file("record")
	e.spec.Pool.Env["RECORD"] = record
	workers := []string{"p/0", "p/1"}
	for _, worker := range workers {
		_, err := e.startAs(worker, 1)
		require.NoError(t, err)
	}
	const rounds = 12
	ctx, stop := context.WithCancel(t.Context())
	var callers, killers sync.WaitGroup
	var mu sync.Mutex
	answered, maybe, refused := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var made atomic.Int64
	for caller := range 8 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("%d.%d", caller, n)
				call, cancel := context.WithTimeout(t.Context(), timeout)
				if n%50 == 49 { // some callers leave
					call, cancel = context.WithTimeout(t.Context(), time.Millisecond)
				}
				answer, err := e.dispatcher.CallPool(call, "p", Request{Method: "record", Body: []byte(id)})
				cancel()
				mu.Lock()
				switch {
				case err == nil && string(answer.Body) != id:
					t.Errorf("call %s got the answer %q", id, answer.Body)
				case err == nil:
					answered[id] = true
				case started(err):
					maybe[id] = true
				default:
					refused[id] = true
					if n%50 != 49 && !errors.Is(err, api.ErrWorkerCrashed) {
						t.Errorf("call %s was refused: %v", id, err)
					}
				}
				mu.Unlock()
				made.Add(1)
			}
		})
	}
	for _, worker := range workers {
		killers.Go(func() {
			for incarnation := int64(1); incarnation <= rounds; incarnation++ {
				proc, found := e.processes.Get(worker, incarnation)
				if !found {
					t.Errorf("%s has no incarnation %d", worker, incarnation)
					return
				}
				before := made.Load()
				for deadline := time.Now().Add(timeout); made.Load() < before+200 && time.Now().Before(deadline); {
					<-time.After(poll)
				}
				proc.Kill("killed by the test")
				<-proc.Done()
				if _, err := e.startAs(worker, incarnation+1); err != nil {
					t.Errorf("%s did not start: %v", worker, err)
					return
				}
			}
		})
	}
	killers.Wait()
	stop()
	callers.Wait()
	requireMadeOnce(t, record, answered, refused)
	t.Logf("%d calls answered, %d may have started, %d refused", len(answered), len(maybe), len(refused))
}

// TestAFatalErrorCountsAlthoughItsCallerHasLeft: the process must not be used again, whoever learns of that.
func TestAFatalErrorCountsAlthoughItsCallerHasLeft(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	ctx, leave := context.WithCancel(t.Context())
	path := e.file("held")
	left := e.call(ctx, "fatal_anyway", strconv.Quote(path))
	e.awaitBegan(path)
	leave()
	require.ErrorIs(t, e.await(left).err, api.ErrCancelled)
	e.letGo(path)
	require.Eventually(t, func() bool { return len(e.reported()) == 1 }, timeout, poll)
	require.True(t, e.reported()[0].replace)
	require.Contains(t, e.reported()[0].reason, "the worker asked to be replaced")
}
