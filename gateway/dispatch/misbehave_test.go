package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// misbehaving records each call, and then does what the call asks for.
const misbehaving = `
import json, os, sys, time, tempool, tempool.frames
OUT = int(os.environ.get("TEMPOOL_OUT", os.environ["TEMPOOL_FD"]))

@tempool.method(raw=True)
def do(body):
    id, what = body.decode().split(":")
    with open(os.environ["RECORD"], "ab", buffering=0) as f:
        f.write(id.encode() + b"\n")
    if what == "exit": raise SystemExit(3)
    if what == "die": os._exit(4)
    if what == "abort": os.abort()
    if what == "bug": raise KeyError(id)
    if what == "fatal": raise tempool.Fatal(id)
    if what == "fork":
        if os.fork() == 0: return b"the child"
    if what == "sleep": time.sleep(0.003)
    if what == "poll": tempool.context().cancelled
    if what == "host":
        try: tempool.context().host("nothing")
        except tempool.HostError: pass
    if what == "print": print("garbage" * 100)
    if what == "term": os.kill(os.getpid(), 15)
    if what == "unhealthy":  tempool.unhealthy("so it says")
    if what == "break": os.close(OUT)
    if what == "garbage": os.write(OUT, b"garbage" * 10)
    if what == "twice": os.write(OUT, tempool.frames.encode(tempool.frames.RESPONSE, 2, payload=b"twice"))
    return id.encode()

@tempool.method(raw=True)
def stream(body):
    id = body.decode().split(":")[0]
    with open(os.environ["RECORD"], "ab", buffering=0) as f:
        f.write(id.encode() + b"\n")
    yield id.encode()[:1]
    yield id.encode()[1:]


tempool.run()
`

func TestNoCallIsLostOrMadeTwiceWhileHandlersMisbehave(t *testing.T) {
	e := aheadEnv(t)
	record := e.file("record")
	e.spec.Pool.Command = []string{"python3", "-c", misbehaving}
	e.spec.Pool.Env["RECORD"] = record
	workers := []string{"p/0", "p/1"}
	for _, worker := range workers {
		_, err := e.startAs(worker, 1)
		require.NoError(t, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
	defer stop()
	common := []string{"", "", "", "", "", "", "", "", "", "", "sleep", "poll", "host", "print", "bug", "fork", "stream", "stream"}
	rare := []string{"exit", "die", "abort", "fatal", "term", "break", "garbage", "twice"}
	var callers, keepers sync.WaitGroup
	over := make(chan struct{})
	for _, worker := range workers {
		keepers.Go(func() {
			for turn := int64(1); ctx.Err() == nil; turn += 2 {
				<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
				p := e.dispatcher.knownPool("p")
				if p == nil {
					continue
				}
				var incarnation int64
				var id string
				locked(p, func() bool {
					if u := p.upstreams[worker]; u != nil {
						incarnation = u.incarnation
						if u.lease != nil {
							id = u.lease.lease.ID
						}
					}
					return true
				})
				switch rand.IntN(5) {
				case 0, 1:
					e.dispatcher.Suspend(ctx, api.SuspendRequest{Process: api.Process{Worker: worker, Incarnation: incarnation}, Turn: turn, Reason: "by the test",
						Timeout: spec.Duration(rand.IntN(2) * 5e7), HookTimeout: spec.Duration(timeout)})
					e.dispatcher.EndSuspension(ctx, api.ResumeRequest{Process: api.Process{Worker: worker, Incarnation: incarnation}, Turn: turn + 1})
				case 2:
					e.dispatcher.Recall(ctx, worker, incarnation, id)
				case 3:
					e.dispatcher.Unhealthy(worker, incarnation, "by the test")
				case 4:
					d, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(2)*20)*time.Millisecond)
					e.dispatcher.Drain(d, worker, incarnation)
					cancel()
					if proc, found := e.processes.Get(worker, incarnation); found {
						if rand.IntN(2) == 0 {
							proc.Kill("by the test")
						} else {
							_, _ = proc.Stop(ctx, time.Second)
						}
					}
				}
			}
		})
	}
	var mu sync.Mutex
	answered, maybe, refused := map[string]bool{}, map[string]bool{}, map[string]bool{}
	counts := map[string]int{}
	for caller := range 10 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				what := common[rand.IntN(len(common))]
				if rand.IntN(400) == 0 {
					what = rare[rand.IntN(len(rare))]
				}
				id := fmt.Sprintf("%d.%d", caller, n)
				method := "do"
				if what == "stream" {
					method = "stream"
				}
				call, cancel := context.WithTimeout(t.Context(), timeout)
				leaves := rand.IntN(30) == 0
				if leaves {
					call, cancel = context.WithTimeout(t.Context(), time.Duration(rand.IntN(4000))*time.Microsecond)
				}
				answer, err := e.dispatcher.CallPool(call, "p", Request{Method: method, Body: []byte(id + ":" + what), Priority: rand.IntN(3)})
				cancel()
				mu.Lock()
				counts[fmt.Sprintf("%s %v %v", what, api.CodeOf(err), started(err))]++
				switch {
				case err == nil && string(answer.Body) != id:
					t.Errorf("call %s got the answer %q", id, answer.Body)
				case err == nil:
					answered[id] = true
				case started(err):
					maybe[id] = true
				default:
					refused[id] = true
					if !leaves {
						t.Errorf("call %s (%s) was refused: %v", id, what, err)
					}
				}
				var remote *wire.RemoteError
				if errors.As(err, &remote) && !strings.Contains(remote.Message, id) && remote.Code != "cancelled" {
					t.Errorf("call %s (%s) got the error of another: %v", id, what, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, worker := range workers {
		keepers.Go(func() {
			proc, _ := e.processes.Get(worker, 1)
			for incarnation := int64(2); ; incarnation++ {
				select {
				case <-proc.Done():
				case <-over:
					return
				}
				if next, err := e.startAs(worker, incarnation); err == nil {
					proc = next
				}
			}
		})
	}
	<-ctx.Done()
	callers.Wait()
	close(over)
	keepers.Wait()
	lines, err := os.ReadFile(record)
	require.NoError(t, err)
	ran := map[string]int{}
	for _, id := range strings.Fields(string(lines)) {
		ran[id]++
	}
	for id, times := range ran {
		require.Equal(t, 1, times, "call %s was made more than once", id)
		require.False(t, refused[id], "call %s was made, but reported as not started", id)
	}
	for id := range answered {
		require.Equal(t, 1, ran[id], "call %s was answered, but not made", id)
	}
	text, _ := json.MarshalIndent(counts, "", " ")
	t.Logf("%s", text)
	s := e.dispatcher.Snapshot().Pools[0]
	require.Zero(t, s.Waiting)
	for _, w := range s.Workers {
		require.Zero(t, w.InFlight)
	}
}
