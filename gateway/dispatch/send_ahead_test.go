package dispatch

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
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/spec"
)

func TestACallIsSentAheadOnlyWhereItHarmsNobody(t *testing.T) {
	good := aheadSituation{brief: true, serial: true, capacity: 1, inFlight: 1, serves: true, leaseLeft: time.Minute, mayGo: true}
	require.True(t, good.sendsAhead())
	for name, change := range map[string]func(*aheadSituation){
		"calls have been long":            func(s *aheadSituation) { s.brief = false },
		"the worker has promised nothing": func(s *aheadSituation) { s.serial = false },
		"several calls in flight":         func(s *aheadSituation) { s.capacity = 4 },
		"idle":                            func(s *aheadSituation) { s.inFlight = 0 },
		"a cancelled call is in flight":   func(s *aheadSituation) { s.inFlight = 2 },
		"out of service":                  func(s *aheadSituation) { s.serves = false },
		"the lease ends":                  func(s *aheadSituation) { s.leaseLeft = time.Second },
		"the lease is to go back":         func(s *aheadSituation) { s.leaseDue = true },
		"a hook waits":                    func(s *aheadSituation) { s.reserved = true },
		"a client waits":                  func(s *aheadSituation) { s.clients = 1 },
		"the call is of a session":        func(s *aheadSituation) { s.mayGo = false },
		"a call for the worker is first":  func(s *aheadSituation) { s.boundFirst = true },
		"a caller sends the call before":  func(s *aheadSituation) { s.callerSends = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			change(&s)
			require.False(t, s.sendsAhead())
		})
	}
}

func TestBrevityGrowsWithShortCallsAndFallsWithLongOnes(t *testing.T) {
	var b brevity
	for range shortCalls {
		require.Less(t, b, brevity(shortCalls))
		b = b.after(shortCall - 1)
	}
	require.Equal(t, brevity(shortCalls), b)
	require.Equal(t, b-3*costOfLong, b.after(3900*time.Microsecond))
	for range 2 * maxBrevity {
		b = b.after(0)
	}
	require.Equal(t, brevity(maxBrevity), b)
	require.Less(t, b.after(30*time.Millisecond), brevity(shortCalls))
	require.Zero(t, b.after(time.Second))
	require.Zero(t, b.after(1<<62))
	require.Zero(t, brevity(0).after(shortCall))
}

// aheadEnv is an env that sends calls ahead whatever they took, with a worker that holds a call until the file a exists.
func aheadEnv(t *testing.T) *env {
	e := newEnv(t)
	e.dispatcher.shortCalls = 0
	e.spec.Lease.IdleReturn = spec.Duration(time.Hour)
	return e
}

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

// holdWithOneAhead returns a call of method that the worker serves until the file exists, and a call of second that was sent behind it.
func (e *env) holdWithOneAhead(ctx context.Context, method, second, body string) (path string, front, ahead <-chan result) {
	e.t.Helper()
	return e.holdInWithOneAhead(e.t.Context(), ctx, method, second, body)
}

// holdInWithOneAhead is holdWithOneAhead for a first call that its caller may leave: its context is frontCtx.
func (e *env) holdInWithOneAhead(frontCtx, ctx context.Context, method, second, body string) (path string, front, ahead <-chan result) {
	e.t.Helper()
	first, path := e.file("first"), e.file("front")
	opener := e.call(e.t.Context(), "hold", strconv.Quote(first))
	e.awaitBegan(first)
	front = e.queued(frontCtx, 1, method, strconv.Quote(path))
	ahead = e.queued(ctx, 2, second, body)
	e.letGo(first)
	require.NoError(e.t, e.await(opener).err)
	e.awaitBegan(path)
	e.awaitAhead(true)
	return path, front, ahead
}

// awaitAhead waits until the worker has, or has not, a call that was sent ahead.
func (e *env) awaitAhead(has bool) {
	e.t.Helper()
	p := e.dispatcher.knownPool("p")
	require.Eventually(e.t, func() bool {
		return locked(p, func() bool {
			n := 0
			for _, u := range p.order {
				n += u.aheadLocked()
			}
			return (n > 0) == has
		})
	}, timeout, poll)
}

func TestACallSentAheadWaitsUntilItsWorkerComesToIt(t *testing.T) {
	e := aheadEnv(t)
	e.start(1)
	held := e.file("second")
	path, front, ahead := e.holdWithOneAhead(t.Context(), "hold", "hold", strconv.Quote(held))
	s := e.dispatcher.Snapshot().Pools[0]
	require.Equal(t, 1, s.Waiting)
	require.Equal(t, map[string]int{"p": 1}, e.dispatcher.Waiting())
	require.Equal(t, 1, s.Workers[0].InFlight)
	demand := e.dispatcher.Demand()[0]
	require.Equal(t, 1, demand.Waiting)
	require.Equal(t, 1, demand.Calls)
	e.letGo(path)
	require.NoError(t, e.await(front).err)
	e.awaitBegan(held)
	e.awaitAhead(false)
	s = e.dispatcher.Snapshot().Pools[0]
	require.Zero(t, s.Waiting)
	require.Equal(t, 1, s.Workers[0].InFlight)
	e.letGo(held)
	require.NoError(t, e.await(ahead).err)
	usage, inFlight := e.dispatcher.Usage("p/0", 1)
	require.EqualValues(t, 3, usage.Requests)
	require.Zero(t, inFlight)
}

func TestACallSentAheadReturnsToItsPlaceInTheQueueWhenTheWorkerEnds(t *testing.T) {
	e := aheadEnv(t)
	e.spec.Queue.Size = 2
	proc := e.start(1)
	_, front, ahead := e.holdWithOneAhead(t.Context(), "hold", "turn", "[]")
	later := e.queued(t.Context(), 1, "turn", "[]")
	last := e.queued(t.Context(), 2, "turn", "[]")
	proc.Kill("killed by the test")
	require.ErrorIs(t, e.await(front).err, api.ErrWorkerCrashed)
	require.Eventually(t, func() bool {
		p := e.dispatcher.knownPool("p")
		return locked(p, p.queue.Len) == 3 // one more than queue.size
	}, timeout, poll)
	e.start(2)
	for i, call := range []<-chan result{ahead, later, last} {
		got := e.await(call)
		require.NoError(t, got.err)
		require.EqualValues(t, 2, got.answer.Incarnation)
		require.Equal(t, strconv.Itoa(i+1), string(got.answer.Body))
	}
}

func TestACallSentAheadHasStartedOnceTheCallBeforeIsAnswered(t *testing.T) {
	e := aheadEnv(t)
	proc := e.start(1)
	held := e.file("second")
	path, front, ahead := e.holdWithOneAhead(t.Context(), "hold", "stubborn", strconv.Quote(held))
	e.letGo(path)
	require.NoError(t, e.await(front).err)
	e.awaitBegan(held)
	proc.Kill("killed by the test")
	err := e.await(ahead).err
	require.ErrorIs(t, err, api.ErrWorkerCrashed)
	require.True(t, started(err))
}

func TestACallThatIsNotGivenUpHarmsNotTheOneBehindIt(t *testing.T) {
	e := aheadEnv(t)
	e.spec.Call.CancelGrace = spec.Duration(time.Millisecond)
	e.start(1)
	ctx, leave := context.WithCancel(t.Context())
	_, front, ahead := e.holdInWithOneAhead(ctx, t.Context(), "stubborn", "turn", "[]")
	leave()
	require.Equal(t, api.CodeCancelled, api.CodeOf(e.await(front).err))
	e.start(2) // the first incarnation is killed for its call
	got := e.await(ahead)
	require.NoError(t, got.err)
	require.EqualValues(t, 2, got.answer.Incarnation)
}

func TestTheCallerOfACallAheadMayLeave(t *testing.T) {
	e := aheadEnv(t)
	e.spec.Call.CancelGrace = spec.Duration(timeout)
	e.start(1)
	ctx, leave := context.WithCancel(t.Context())
	path, front, ahead := e.holdWithOneAhead(ctx, "stubborn", "turn", "[]")
	leave()
	err := e.await(ahead).err
	require.Equal(t, api.CodeCancelled, api.CodeOf(err))
	require.True(t, started(err), "the worker may come to it before it reads the cancel")
	next := e.queued(t.Context(), 1, "turn", "[]")
	e.letGo(path)
	require.NoError(t, e.await(front).err)
	got := e.await(next)
	require.NoError(t, got.err)
	require.EqualValues(t, 1, got.answer.Incarnation)
	usage, _ := e.dispatcher.Usage("p/0", 1)
	require.EqualValues(t, 4, usage.Requests, "a call that may have run counts")
}

func TestACallBehindALongOneEndsWithQueueTimeout(t *testing.T) {
	e := aheadEnv(t)
	e.start(1)
	first, path := e.file("first"), e.file("front")
	opener := e.call(t.Context(), "hold", strconv.Quote(first))
	e.awaitBegan(first)
	front := e.queued(t.Context(), 1, "stubborn", strconv.Quote(path))
	ahead := e.queued(t.Context(), 2, "turn", "[]")
	p := e.dispatcher.knownPool("p")
	waits := locked(p, func() *waiter {
		for w := range p.queue.All() {
			if w.call.method == "turn" {
				return w
			}
		}
		return nil
	})
	e.letGo(first)
	require.NoError(t, e.await(opener).err)
	e.awaitBegan(path)
	e.awaitAhead(true)
	_, err := e.startAs("p/1", 1)
	require.NoError(t, err)
	free := e.await(e.call(t.Context(), "turn", "[]")) // another worker serves others
	require.NoError(t, free.err)
	require.Equal(t, "p/1", free.answer.Worker)
	waits.timer.Reset(0) // queue.timeout is over
	err = e.await(ahead).err
	require.Equal(t, api.CodeDeadlineExceeded, api.CodeOf(err))
	require.ErrorContains(t, err, "queue.timeout")
	require.True(t, started(err))
	e.letGo(path)
	got := e.await(front)
	require.NoError(t, got.err)
	require.EqualValues(t, 1, got.answer.Incarnation)
}

func TestADrainWaitsForTheCallAhead(t *testing.T) {
	e := aheadEnv(t)
	e.start(1)
	path, front, ahead := e.holdWithOneAhead(t.Context(), "hold", "turn", "[]")
	drained := make(chan api.DrainResult, 1)
	go func() { drained <- e.dispatcher.Drain(t.Context(), "p/0", 1) }()
	p := e.dispatcher.knownPool("p")
	require.Eventually(t, func() bool { return locked(p, func() bool { return p.upstreams["p/0"].draining }) }, timeout, poll)
	e.letGo(path)
	require.NoError(t, e.await(front).err)
	require.NoError(t, e.await(ahead).err)
	result := <-drained
	require.True(t, result.Drained)
	require.EqualValues(t, 3, result.Checkin.Usage.Requests)
}

func TestASuspensionWaitsForTheCallAheadOrCutsIt(t *testing.T) {
	for name, cut := range map[string]bool{"waits": false, "cuts": true} {
		t.Run(name, func(t *testing.T) {
			e := aheadEnv(t)
			e.start(1)
			path, front, ahead := e.holdWithOneAhead(t.Context(), "hold", "turn", "[]")
			request := api.SuspendRequest{Process: api.Process{Worker: "p/0", Incarnation: 1}, Turn: 1, Reason: "by the test", HookTimeout: spec.Duration(timeout)}
			if !cut {
				request.Timeout = spec.Duration(timeout)
			}
			suspended := make(chan api.SuspendResult, 1)
			go func() { suspended <- e.dispatcher.Suspend(t.Context(), request) }()
			p := e.dispatcher.knownPool("p")
			require.Eventually(t, func() bool { return locked(p, func() bool { return p.upstreams["p/0"].suspension != nil }) }, timeout, poll)
			if !cut {
				e.letGo(path)
			}
			fronts, aheads := e.await(front), e.await(ahead)
			result := <-suspended
			if !cut {
				require.NoError(t, fronts.err)
				require.NoError(t, aheads.err)
				return
			}
			require.ErrorIs(t, fronts.err, api.ErrLeaseFenced)
			require.ErrorIs(t, aheads.err, api.ErrLeaseFenced)
			require.Equal(t, 2, result.CallsCut)
		})
	}
}

func TestALeaseInConstantUseGoesBackAlthoughCallsAreSentAhead(t *testing.T) {
	e := aheadEnv(t)
	e.start(1)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, err := e.dispatcher.CallPool(t.Context(), "p", Request{Method: "echo"}); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
			}
		})
	}
	for n := range 3 {
		require.Eventually(t, func() bool { return e.dispatcher.knownPool("p") != nil }, timeout, poll)
		e.awaitAhead(true)
		p := e.dispatcher.knownPool("p")
		require.Eventually(t, func() bool {
			return locked(p, func() bool {
				u := p.upstreams["p/0"]
				if u.lease == nil || u.lease.ended {
					return false
				}
				u.lease.returnAt = time.Now()
				return true
			})
		}, timeout, poll)
		p.notify()
		require.Eventually(t, func() bool { return len(e.control.returned()) > n }, timeout, poll)
	}
	stop()
	callers.Wait()
}

// TestNoCallIsLostOrMadeTwiceWhileWorkersAreKilled: a call that fails as not started was never made, and no call is made twice.
func TestNoCallIsLostOrMadeTwiceWhileWorkersAreKilled(t *testing.T) {
	e := aheadEnv(t)
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

func TestACallBehindAFatalOneIsNotMadeThere(t *testing.T) {
	e := aheadEnv(t)
	e.dispatcher.config.Events = events.New("here")
	e.start(1)
	path, front, ahead := e.holdWithOneAhead(t.Context(), "fatal_later", "turn", "[]")
	e.letGo(path)
	require.ErrorIs(t, e.await(front).err, api.ErrWorkerError)
	require.Eventually(t, func() bool { return len(e.control.returned()) == 1 }, timeout, poll)
	checkin := e.control.returned()[0]
	require.Equal(t, api.OutcomeClose, checkin.Outcome)
	require.EqualValues(t, 2, checkin.Usage.Requests, "the call behind was not made")
	require.NoError(t, e.await(ahead).err)
	require.Len(t, e.failures(), 1)
}

// TestAFatalErrorCountsAlthoughItsCallerHasLeft: the process must not be used again, whoever learns of that.
func TestAFatalErrorCountsAlthoughItsCallerHasLeft(t *testing.T) {
	e := aheadEnv(t)
	e.start(1)
	ctx, leave := context.WithCancel(t.Context())
	path, front, ahead := e.holdInWithOneAhead(ctx, t.Context(), "fatal_anyway", "turn", "[]")
	leave()
	require.ErrorIs(t, e.await(front).err, api.ErrCancelled)
	e.letGo(path)
	require.Eventually(t, func() bool { return len(e.control.returned()) == 1 }, timeout, poll)
	require.Equal(t, api.OutcomeClose, e.control.returned()[0].Outcome)
	require.NoError(t, e.await(ahead).err)
}

// TestNoCallGoesAheadOfOneThatItsCallerSends: it would wait for that call without queue.timeout, or overtake it.
func TestNoCallGoesAheadOfOneThatItsCallerSends(t *testing.T) {
	e := aheadEnv(t)
	e.start(1)
	first := e.file("first")
	opener := e.call(t.Context(), "hold", strconv.Quote(first))
	e.awaitBegan(first)
	chosen, mayGo, front := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	send := sync.OnceFunc(func() { close(mayGo) })
	defer send()
	onStart := func(string, int64) error {
		close(chosen)
		<-mayGo
		return nil
	}
	go func() {
		_, err := e.dispatcher.Do(t.Context(), AnyWorker("p", "", DefaultPriority), Request{Method: "turn", Body: []byte("[]"), onStart: onStart}, exchange)
		front <- err
	}()
	p := e.dispatcher.knownPool("p")
	require.Eventually(t, func() bool { return locked(p, p.queue.Len) == 1 }, timeout, poll)
	behind := e.queued(t.Context(), 2, "turn", "[]")
	e.letGo(first)
	require.NoError(t, e.await(opener).err)
	<-chosen
	require.Equal(t, 1, locked(p, p.queue.Len))
	_, inFlight := e.dispatcher.Usage("p/0", 1)
	require.Equal(t, 1, inFlight)
	send()
	require.NoError(t, <-front)
	got := e.await(behind)
	require.NoError(t, got.err)
	require.Equal(t, "2", string(got.answer.Body))
}
