package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

const (
	// exitAfterHangup is how long a process that closed its connection has to exit by itself before it is ended.
	exitAfterHangup = time.Second
	// lastWords is how long a connection may still deliver what a process wrote before it exited.
	lastWords = 50 * time.Millisecond
)

// Process is one incarnation. All methods are safe for concurrent use.
type Process struct {
	supervisor *Supervisor
	name       key
	spec       *spec.Spec
	plan       *plan
	logs       *logRing
	known      *memberSet
	meter      meter
	counted    map[string]int64 // of remains: the counts of the connection they no longer have

	// Set by fork, before anybody else sees the process.
	cmd       *exec.Cmd
	root      identity
	startedAt time.Time
	pipes     pipes
	readers   sync.WaitGroup
	conn      wire.Conn
	connErr   error
	awaitExit func()

	wake   chan struct{} // ending has changed
	exited chan struct{} // closed when the root process has ended; it is not reaped yet
	done   chan struct{} // closed when the tree is gone and exit is set

	mu       sync.Mutex
	ending   ending
	afterEnd []func() // none once it is over
	over     bool
	address  string    // protocol none, once it listens
	readyAt  time.Time // zero until it is ready
	exit     Exit

	cpuWatch cpuWatch // the enforcing loop's alone

	applying   sync.Mutex // held over a change of limits
	limitsMu   sync.Mutex
	limits     spec.Limits // those in force
	limitMeans map[string]Means
	excess     *Excess
	exceeded   chan struct{} // closed with the first excess
}

// Info is what does not change once a process is ready.
type Info struct {
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"` // when it was spawned
	ReadyAt   time.Time `json:"ready_at"`   // when it had passed its handshake and warm-up; zero before
	Cookie    string    `json:"cookie"`
	// Address is where a worker of protocol none listens: host:port, or the path of a Unix socket. Empty for other protocols.
	Address string `json:"address,omitempty"`
}

// Worker is the worker's name, such as python/0.
func (p *Process) Worker() string { return p.name.worker }

// Incarnation counts from 1.
func (p *Process) Incarnation() int64 { return p.name.incarnation }

func (p *Process) key() key { return p.name }

// Info returns the facts of the process.
func (p *Process) Info() Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Info{PID: p.root.PID, StartedAt: p.startedAt, ReadyAt: p.readyAt, Cookie: p.plan.cookie, Address: p.address}
}

// Conn is how the worker is spoken to; nil for protocol none, and for a process that Get finds a while after its end. When it breaks, the incarnation is ended.
func (p *Process) Conn() wire.Conn { return p.conn }

// Counts is what the program has counted through its SDK, by the counter's name; it begins anew with each incarnation.
func (p *Process) Counts() map[string]int64 {
	if p.conn == nil {
		return maps.Clone(p.counted)
	}
	return wire.CountsOf(p.conn)
}

// Done is closed when the process and its whole tree are gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// AfterEnd has f called once the process and its whole tree are gone, never on the caller's goroutine. Unlike a goroutine that waits for
// Done it takes next to no memory meanwhile. f must not wait for anything but locks: others wait for their turn, and Close for all.
func (p *Process) AfterEnd(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		go f()
		return
	}
	p.afterEnd = append(p.afterEnd, f)
}

// end tells the world that the process is gone.
func (p *Process) end() {
	close(p.done)
	p.mu.Lock()
	p.over = true
	tell := p.afterEnd
	p.afterEnd = nil
	p.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// Exit tells how the process ended. It is the zero Exit until Done is closed.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Logs returns the newest lines of output, at most 200, oldest first.
func (p *Process) Logs() []LogLine { return p.logs.all() }

func (p *Process) treeKey() treeKey {
	return treeKey{Root: p.root, Cookie: p.plan.cookie, known: p.known}
}

// Stop sends TERM to the process group and, when grace has passed, KILL to the whole tree; a grace of 0 or less means the spec's
// stop_grace. It returns how the process ended, when the tree is gone. Further calls join the stop in progress, and shorten its grace
// if theirs ends sooner. When ctx ends first its error is returned, and the stop goes on.
func (p *Process) Stop(ctx context.Context, grace time.Duration) (Exit, error) {
	p.requestStop(grace)
	select {
	case <-p.done:
		return p.Exit(), nil
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("stop %s: %w", p.key(), context.Cause(ctx))
	}
}

// Kill ends the whole tree at once; reason is why, and shows in the Exit. It does not wait: Done does.
func (p *Process) Kill(reason string) {
	p.change(func(e *ending) {
		if e.kill == "" {
			e.kill = reason
		}
	})
}

func (p *Process) requestStop(grace time.Duration) {
	if grace <= 0 {
		grace = p.spec.Pool.StopGrace.D()
	}
	p.change(func(e *ending) {
		until := time.Now().Add(grace)
		if !e.stopped || until.Before(e.grace) {
			e.grace, e.graceSpan = until, grace
		}
		e.stopped = true
	})
}

// fault ends the process at once for something that is wrong with it.
func (p *Process) fault(what string) {
	p.change(func(e *ending) {
		if e.fault == "" {
			e.fault = what
		}
	})
}

func (p *Process) change(set func(*ending)) {
	p.mu.Lock()
	set(&p.ending)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Process) endingNow() ending {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending
}

// supervise carries out every end of the process, its own included.
func (p *Process) supervise() {
	go func() {
		p.awaitExit()
		close(p.exited)
	}()
	p.untilExit()
	p.hangUp()
	p.letGroupFinish()
	report := p.endTree()
	state := p.reapRoot()
	p.finish(state, report)
}

// untilExit sends the signals that are asked for, until the root process has ended.
func (p *Process) untilExit() {
	var broken <-chan struct{}
	if p.conn != nil {
		broken = p.conn.Done()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	hangup := time.Time{}
	for terminated, killed := false, false; ; {
		e := p.endingNow()
		now := time.Now()
		switch {
		case killed:
		case e.kill != "" || e.fault != "":
			killed = true
			p.signal(syscall.SIGKILL)
		case e.stopped && !now.Before(e.grace):
			p.change(func(e *ending) { e.outlived = true })
			killed = true
			p.signal(syscall.SIGKILL)
		case e.stopped && !terminated:
			terminated = true
			p.signal(syscall.SIGTERM)
			p.signal(sigCont) // a stopped process would not notice
		case !hangup.IsZero() && !now.Before(hangup) && !e.stopped:
			p.fault(fmt.Sprintf("it closed its connection but did not exit: %v", p.conn.Err()))
		}
		next := time.Hour
		if e.stopped && !killed {
			next = time.Until(e.grace)
		} else if !hangup.IsZero() && !killed {
			next = time.Until(hangup)
		}
		timer.Reset(max(next, 0))
		select {
		case <-p.exited:
			return
		case <-p.wake:
		case <-timer.C:
		case <-broken:
			broken = nil
			if err := p.conn.Err(); !e.stopped && !hungUp(err) {
				p.fault(fmt.Sprintf("it broke the protocol: %v", err))
			} else {
				hangup = time.Now().Add(exitAfterHangup)
			}
		}
	}
}

// hungUp reports whether a connection ended as it does when the worker closes it, or dies.
func hungUp(err error) bool { return errors.Is(err, wire.ErrPeerClosed) }

// signal reaches the process group while its leader is unreaped.
func (p *Process) signal(sig syscall.Signal) {
	if err := signalGroup(p.root.PID, sig); err != nil {
		p.supervisor.logger.Error("a process group cannot be signalled", "worker", p.Worker(), "pid", p.root.PID, "signal", signalName(sig), "error", err)
	}
}

// hangUp fails the calls in flight, also when a descendant holds the connection open.
func (p *Process) hangUp() {
	if p.conn == nil {
		return
	}
	select {
	case <-p.conn.Done():
	case <-time.After(lastWords):
	}
	_ = p.conn.Close()
}

// letGroupFinish leaves the rest of a group that got TERM what remains of its grace: a parent may well be done before its children.
func (p *Process) letGroupFinish() {
	e := p.endingNow()
	if !e.stopped || e.outlived || e.kill != "" || e.fault != "" {
		return
	}
	for pause := time.Millisecond; time.Now().Before(e.grace); pause = min(2*pause, 50*time.Millisecond) {
		t, err := glance()
		if err != nil || !t.groupLives(p.root.PID) {
			return
		}
		select {
		case <-p.wake:
			if e = p.endingNow(); e.kill != "" || e.fault != "" {
				return
			}
		case <-time.After(pause):
		}
	}
}

// endTree kills what is left of the tree. The root is not reaped yet, so the group's number is still its own.
func (p *Process) endTree() killReport {
	p.signal(syscall.SIGKILL)
	key := p.treeKey()
	key.pinned = true
	report := killTree(key)
	for _, id := range p.known.list() {
		if id != p.root {
			reapAdopted(id)
		}
	}
	return report
}

func (p *Process) reapRoot() *os.ProcessState {
	if err := waitChild(p.cmd); err != nil && p.cmd.ProcessState == nil {
		p.supervisor.logger.Error("a process cannot be waited for", "worker", p.Worker(), "pid", p.root.PID, "error", err)
	}
	return p.cmd.ProcessState
}

// finish ends the readers, tells everybody and closes done.
func (p *Process) finish(state *os.ProcessState, report killReport) {
	read := make(chan struct{})
	go func() {
		p.readers.Wait()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(waitDelay):
	}
	p.pipes.close()
	<-read

	code, signal := exitStatus(state)
	exit := p.limitReached(classify(code, signal, p.endingNow())).withOutput(p.logs)
	exit.At = time.Now()
	if report.err != nil || len(report.left) > 0 {
		exit.Reason += "; " + report.String()
		p.supervisor.logger.Error("a process tree was not ended", "worker", p.Worker(), "incarnation", p.Incarnation(), "report", report.String())
	} else {
		p.forget()
	}
	p.mu.Lock()
	p.exit = exit
	p.mu.Unlock()
	p.supervisor.remember(p)
	p.supervisor.logger.Info("worker process ended", "worker", p.Worker(), "incarnation", p.Incarnation(), "pid", p.root.PID,
		"killed", exit.Killed, "interrupted", exit.Interrupted, "code", exit.Code, "signal", exit.Signal, "reason", exit.Reason)
	p.end()
}

func exitStatus(state *os.ProcessState) (int, syscall.Signal) {
	if state == nil {
		return -1, 0
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 0, status.Signal()
	}
	return state.ExitCode(), 0
}

// readLog keeps and forwards what the process writes.
func (p *Process) readLog(stream string, in io.Reader) {
	err := readLines(in, func(text string) {
		p.logs.add(LogLine{At: time.Now(), Stream: stream, Text: text})
		p.supervisor.logger.Info(text, "worker", p.Worker(), "incarnation", p.Incarnation(), "stream", stream)
	})
	if err != nil && !errors.Is(err, os.ErrClosed) {
		p.supervisor.logger.Warn("output of a process is lost", "worker", p.Worker(), "stream", stream, "error", err)
	}
}
