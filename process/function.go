package process

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Function is what a pool of kind "function" runs: it serves one incarnation within this program, until stopping is
// closed and its calls are done, or until ctx or run.Conn ends. A panic in it ends this program, so it must recover its
// own and report them.
type Function func(ctx context.Context, run FunctionRun) error

// FunctionRun is one incarnation of a Function.
type FunctionRun struct {
	Worker      string // such as thumbs/0
	Incarnation int64
	// Conn is the function's end of a pipe in memory, which carries frames.
	Conn net.Conn
	// Stopping is closed when the function is to answer the calls that it has and return.
	Stopping <-chan struct{}
	// Log adds a line to the worker's log.
	Log func(line string)
	// Crash ends the incarnation as failed.
	Crash func(reason string)
}

// returnTimeout is how long a function that was cut may take to return. A goroutine cannot be ended from outside: one
// that does not return is abandoned, and counted until it does.
const returnTimeout = time.Second

// maxAbandoned bounds the incarnations of one function that are abandoned: each keeps its memory until it returns.
const maxAbandoned = 16

// function is the kind "function": goroutines of this program, with a connection in memory.
type function struct {
	*Process
	serve Function
	conn  net.Conn // the function's end
	cut   context.CancelFunc
	life  context.Context // until it is cut

	ask       func()                 // by a stop
	crash     atomic.Pointer[string] // the first reason
	returned  <-chan struct{}
	err       error // of serve, before returned is closed
	abandoned bool  // by wait
}

// newFunction makes an incarnation that has not started. It has only the limits that a gateway enforces.
func (s *Supervisor) newFunction(launch Launch) (*Process, error) {
	name := launch.Spec.Pool.Function
	serve, found := s.config.Functions[name]
	if !found {
		has := "it has none"
		if len(s.config.Functions) > 0 {
			has = "it has " + strings.Join(slices.Sorted(maps.Keys(s.config.Functions)), ", ")
		}
		return nil, coded(CodeInvalid, nil,
			"this agent has no function %q (%s); build an agent that registers it with worker.Register", name, has)
	}
	if abandoned := s.countAbandoned(name, 0); abandoned >= maxAbandoned {
		return nil, coded(CodeStartFailed, nil,
			"%d ended workers of the function %q still have running calls, of at most %d; make the function return when its "+
				"context ends, and restart the agent if its calls never do",
			abandoned, name, maxAbandoned)
	}
	inForce := spec.Limits{CallsPerMinute: launch.Spec.Limits.CallsPerMinute}
	planned, _ := limits.NewPlan(inForce, launch.Worker, s.host) // fails for other limits only
	pl := &plan{cookie: tree.NewCookie(s.config.HostID, launch.Worker, launch.Incarnation, s.state.id),
		mechanisms: planned.Mechanisms}
	p := s.newProcess(launch, pl, inForce)
	p.kind = &function{Process: p, serve: serve}
	return p, nil
}

func (f *function) start(context.Context) error {
	f.startedAt = time.Now()
	f.life, f.cut = context.WithCancel(context.Background())
	var host net.Conn
	host, f.conn = net.Pipe()
	f.Process.conn = wire.NewFrames(host, host, f.wireOptions())
	asked := make(chan struct{})
	f.ask = sync.OnceFunc(func() { close(asked) })
	run := FunctionRun{
		Worker: f.Worker(), Incarnation: f.Incarnation(), Conn: f.conn, Stopping: asked,
		Log: func(line string) { f.logs.Add("stderr", truncate(line, maxLineBytes)) },
		Crash: func(reason string) {
			f.crash.CompareAndSwap(nil, &reason)
			f.cut()
		},
	}
	f.logs.Note("started as a function of the agent")
	f.returned = sleep.Done(func() { f.err = f.serve(f.life, run) })
	return nil
}

// wait returns once the function has returned, or has crashed or was cut and had the time to return.
func (f *function) wait() {
	select {
	case <-f.returned:
	case <-f.life.Done():
		f.abandoned = sleep.For(f.returned, returnTimeout)
	}
	f.cut()
	if f.abandoned {
		_ = f.conn.Close() // what it still writes is not read
		name := f.spec.Pool.Function
		f.supervisor.countAbandoned(name, 1)
		go func() { // no longer than the function itself
			<-f.returned
			f.supervisor.countAbandoned(name, -1)
		}()
	}
}

// stop asks the function to return, or cuts its calls.
func (f *function) stop(force bool) {
	if force {
		f.cut()
	} else {
		f.ask()
	}
}

func (f *function) end() ending {
	f.closeConn(finalReadTimeout)
	e := ending{status: "returned", inAgent: true}
	switch t, crash := f.currentTermination(), f.crash.Load(); {
	case crash != nil: // perhaps as it returned, or as it was cut
		e.code, e.failure = crashCode, *crash
	case t.killed() || t.graceExpired:
		e.signal = syscall.SIGKILL
	case !f.abandoned && f.err != nil:
		e.code, e.failure = 1, f.err.Error()
	}
	if f.abandoned {
		e.note = fmt.Sprintf("a call did not return within %s of its end; its goroutine is abandoned", returnTimeout)
	}
	return e
}

// crashCode is the exit code of a Go program that panics.
const crashCode = 2

func (f *function) release() {}

func (f *function) probe(context.Context) error {
	return coded(CodeInvalid, nil, "a function supports no probe of kind %q, only of %q", f.spec.Health.Kind,
		spec.HealthRPC)
}

// AbandonedFunctions counts the incarnations of kind "function" that have ended while one of their calls still runs.
func (s *Supervisor) AbandonedFunctions() (all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.abandoned {
		all += n
	}
	return all
}

// countAbandoned adds to the abandoned incarnations of a function, and returns how many there are.
func (s *Supervisor) countAbandoned(function string, add int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned[function] += add
	return s.abandoned[function]
}
