package pool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// misbehaving records each call before it does what the call asks for.
const misbehaving = `
import os, time, tempool, tempool.frames

OUT = int(os.environ["TEMPOOL_OUT"])

def twice(): os.write(OUT, tempool.frames.encode(tempool.frames.RESPONSE, tempool.context()._id, payload=current))
def fork():
    if os.fork() == 0: raise RuntimeError("a child must not answer")
def fatal(): raise tempool.Fatal("fatal")
def leave(): raise SystemExit(3)

DO = {
    "answer": lambda: None, "sleep": lambda: time.sleep(0.003), "poll": lambda: tempool.context().cancelled,
    "print": lambda: print("text" * 100), "fork": fork,
    "leave": leave, "die": lambda: os._exit(4), "abort": os.abort,
    "fatal": fatal, "term": lambda: os.kill(os.getpid(), 15),
    "close": lambda: os.close(OUT), "garbage": lambda: os.write(OUT, b"garbage" * 10), "twice": twice,
}

def recorded(body):
    global current
    current, what = body.split(b":")
    with open(os.environ["RECORD"], "ab", buffering=0) as f:
        f.write(current + b"\n")
    DO[what.decode()]()
    return current

@tempool.method(raw=True)
def do(body): return recorded(body)

@tempool.method(raw=True)
def stream(body):
    id = recorded(body)
    yield id[:1]
    yield id[1:]

tempool.run()
`

// TestNoCallIsLostOrMadeTwiceWhateverHappens: handlers misbehave, callers leave, operators suspend, degrade, drain and
// stop workers, and processes are killed. A call that fails as not started was never made, and no call is made twice.
func TestNoCallIsLostOrMadeTwiceWhateverHappens(t *testing.T) {
	e := newEnv(t)
	record := e.file("record")
	e.spec.Pool.Command = []string{"python3", "-c", misbehaving}
	e.spec.Pool.Env["RECORD"] = record
	e.dispatcher.config.Unhealthy = func(worker string, incarnation int64, _ string, replace bool) {
		if proc, found := e.processes.Get(worker, incarnation); found && replace {
			_, _ = proc.Stop(context.Background(), timeout)
		}
	}
	harmless := []string{"answer", "answer", "answer", "sleep", "poll", "print", "fork"}
	harmful := []string{"leave", "die", "abort", "fatal", "term", "close", "garbage", "twice"}
	workers := []string{"p/0", "p/1"}
	over := make(chan struct{})
	var callers, keepers sync.WaitGroup
	for _, worker := range workers {
		proc, err := e.startAs(worker, 1)
		require.NoError(t, err)
		keepers.Go(func() {
			for incarnation := int64(2); ; incarnation++ {
				select {
				case <-proc.Done():
				case <-over:
					return
				}
				if next, err := e.startAs(worker, incarnation); err == nil { // or an operator has stopped it
					proc = next
				}
			}
		})
	}
	var mu sync.Mutex
	answered, refused := map[string]bool{}, map[string]bool{}
	for caller := range 8 {
		callers.Go(func() {
			for n := range 300 {
				if n%40 == 39 {
					e.operate(workers[rand.IntN(len(workers))], int64(n))
				}
				what := harmless[rand.IntN(len(harmless))]
				if n%50 == 49 {
					what = harmful[rand.IntN(len(harmful))]
				}
				limit := timeout
				if n%20 == 19 { // its caller leaves
					limit = time.Duration(rand.IntN(4000)) * time.Microsecond
				}
				id := fmt.Sprintf("%d.%d", caller, n)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				answer, err := e.dispatcher.CallPool(ctx, "p",
					Request{Method: []string{"do", "stream"}[rand.IntN(2)], Body: []byte(id + ":" + what), Priority: rand.IntN(3)})
				cancel()
				mu.Lock()
				switch {
				case err == nil && string(answer.Body) != id:
					t.Errorf("call %s got the answer %q", id, answer.Body)
				case err == nil:
					answered[id] = true
				case !Started(err):
					refused[id] = true
					if limit == timeout {
						t.Errorf("call %s was refused: %v", id, err)
					}
				case what == "answer" && api.CodeOf(err) == api.CodeWorkerError:
					t.Errorf("call %s got the error of another: %v", id, err)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	close(over)
	keepers.Wait()
	made := requireMadeOnce(t, record, answered, refused)
	s := e.dispatcher.Snapshot().Pools[0]
	require.Zero(t, s.Waiting)
	for _, w := range s.Workers {
		require.Zero(t, w.InFlight)
	}
	t.Logf("%d calls answered, %d refused, %d made", len(answered), len(refused), made)
}

// requireMadeOnce requires that the programs have recorded each answered call once, none twice, and no refused one. It
// returns how many they recorded.
func requireMadeOnce(t *testing.T, record string, answered, refused map[string]bool) int {
	t.Helper()
	lines, err := os.ReadFile(record)
	require.NoError(t, err)
	made := map[string]int{}
	for _, id := range strings.Fields(string(lines)) {
		made[id]++
	}
	for id, times := range made {
		require.Equal(t, 1, times, "call %s was made more than once", id)
		require.False(t, refused[id], "call %s was made, but reported as not started", id)
	}
	for id := range answered {
		require.Equal(t, 1, made[id], "call %s was answered, but not made", id)
	}
	return len(made)
}

// operate does what operators and the control plane may do to a worker at any time.
func (e *env) operate(worker string, generation int64) {
	p := e.dispatcher.knownPool("p")
	if p == nil {
		return
	}
	var process api.Process
	locked(p, func() bool {
		u := p.newestLocked(worker)
		if u == nil {
			return false
		}
		process = api.Process{Worker: worker, Incarnation: u.incarnation}
		return true
	})
	ctx, cancel := context.WithTimeout(e.t.Context(), timeout)
	defer cancel()
	switch rand.IntN(6) {
	case 0:
		e.dispatcher.Suspend(ctx, api.SuspendRequest{Process: process, Generation: generation,
			Timeout: spec.Duration(rand.IntN(2)) * spec.Duration(timeout)})
		e.dispatcher.EndSuspension(ctx, api.ResumeRequest{Process: process, Generation: generation + 1})
	case 1:
		e.dispatcher.SetHealth(worker, process.Incarnation, "by the test")
		e.dispatcher.SetHealth(worker, process.Incarnation, "")
	case 2:
		e.dispatcher.Drain(ctx, worker, process.Incarnation)
		fallthrough
	case 3:
		if proc, found := e.processes.Get(worker, process.Incarnation); found {
			_, _ = proc.Stop(ctx, timeout)
		}
	default:
		if proc, found := e.processes.Get(worker, process.Incarnation); found {
			proc.Kill("killed by the test")
		}
	}
}
