package process

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/sandbox"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Process is one incarnation. All methods are safe for concurrent use. With Recycle it has several operating system
// processes, one after the other, each of which has a Process of its own: others only see that of the first, the head,
// whose methods answer for the newest one.
type Process struct {
	head    *Process                // itself for the first
	newest  atomic.Pointer[Process] // of the head; nil for itself
	number  int64                   // from 1 within the incarnation
	launch  Launch                  // with which the next one is started
	used    atomic.Pointer[Use]     // what it serves
	binding *Binding                // the key that it was started for; nil for none
	before  map[string]int64        // what Counts was for the process before

	supervisor *Supervisor
	kind       kind
	name       key
	spec       *spec.Spec
	plan       *plan
	logs       *logs.Output
	logger     *slog.Logger // the agent's, about this incarnation
	members    *tree.MemberSet
	meter      tree.Meter
	served     *Served

	// Set by the start, before anybody else sees the process.
	child     bool          // of this program, which alone reaps it; not each that was taken over is
	template  *template     // whose fork it is; nil for none
	root      tree.Identity // zero for a function
	startedAt time.Time
	pipes     pipes
	readers   sync.WaitGroup
	conn      *wire.Conn
	connErr   error
	awaitExit func()

	probing    sync.RWMutex // held for reading while an exec probe starts
	namespaces sandbox.Namespaces

	unhealthy chan string // the newest report that nobody has taken

	freezer freezer

	wake   chan struct{} // termination has changed
	exited chan struct{} // closed when the root process has exited; it is not reaped yet
	done   chan struct{} // closed when the tree is gone and exit is set

	mu          sync.Mutex
	termination termination
	onEnded     []func() // nil once done is closed
	handedOver  bool
	address     string          // protocol none, once it listens
	greeting    json.RawMessage // see Greeting; that of the process before until this one has answered
	readyAt     time.Time       // zero until it is ready
	exit        Exit

	cpuWindow limits.CPUWindow // used only by the enforcing loop

	applying  sync.Mutex // of the head, held during a change of limits
	inForce   atomic.Pointer[limitsInForce]
	violation atomic.Pointer[limits.Violation] // of the head: the first
	exceeded  chan struct{}                    // of the head: closed with the first violation

	memoryExceeded atomic.Bool // see MemoryLimitExceeded
}

// Info is what does not change once a process is ready.
type Info struct {
	PID       int       `json:"pid"`
	Number    int64     `json:"process"`    // of the process within its incarnation, from 1
	StartedAt time.Time `json:"started_at"` // when it was spawned
	ReadyAt   time.Time `json:"ready_at"`   // when it had passed its handshake and warm-up; zero before
	Cookie    string    `json:"cookie"`
	// Address is where a worker of protocol none listens: host:port, or the path of a Unix socket. Empty for other
	// protocols.
	Address string `json:"address,omitempty"`
}

// Worker returns the worker's name, such as python/0.
func (p *Process) Worker() string { return p.name.worker }

// Incarnation counts from 1.
func (p *Process) Incarnation() int64 { return p.name.incarnation }

func (p *Process) key() key { return p.name }

// Spec returns the spec that the incarnation was started with.
func (p *Process) Spec() spec.Spec { return *p.spec }

// SharedSpec is Spec without a copy. Nobody may change it.
func (p *Process) SharedSpec() *spec.Spec { return p.spec }

// now is the newest process of a head's incarnation; any other process is itself.
func (p *Process) now() *Process {
	if newest := p.newest.Load(); newest != nil {
		return newest
	}
	return p
}

// Info returns the facts of the process. StartedAt and ReadyAt are those of the incarnation's first one.
func (p *Process) Info() Info {
	n := p.now()
	info := Info{PID: n.root.PID, Number: n.number, StartedAt: p.startedAt, Cookie: n.plan.cookie}
	p.mu.Lock()
	info.ReadyAt, info.Address = p.readyAt, p.address
	p.mu.Unlock()
	return info
}

// isReady reports whether this process has passed its handshake and warm-up.
func (p *Process) isReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.readyAt.IsZero()
}

// Conn returns the connection to the worker; nil for protocol none, and for an exit record. A broken connection
// ends the incarnation.
func (p *Process) Conn() *wire.Conn { return p.now().conn }

// Era is which revisions of MCP are spoken with the process: spec.EraLegacy or spec.EraModern; "" for any other
// program.
func (p *Process) Era() string { return p.launch.era }

// Greeting is what an MCP server has answered to our initialize or server/discover; nil for any other program, and for
// an MCP server whose clients send their own initialize.
func (p *Process) Greeting() json.RawMessage {
	p = p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.greeting
}

// Counts returns the counters that the program keeps through its SDK, by name. They start at 0 with each incarnation.
func (p *Process) Counts() map[string]int64 {
	p = p.now()
	var counts map[string]int64
	if p.conn != nil {
		counts = wire.CountsOf(p.conn)
	}
	for name, n := range p.before {
		if counts == nil {
			counts = make(map[string]int64)
		}
		counts[name] += n
	}
	return counts
}

// Unhealthy delivers why the program reports itself unhealthy. While nobody receives, one report waits and further ones
// are dropped.
func (p *Process) Unhealthy() <-chan string { return p.unhealthy }

func (p *Process) reportUnhealthy(reason string) {
	select {
	case p.unhealthy <- reason:
	default:
	}
}

// Done is closed when the process and its whole tree are gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// HasEnded reports whether Done is closed.
func (p *Process) HasEnded() bool { return sleep.Ended(p.done) }

// AfterEnd registers f to be called once the process and its whole tree are gone, never on the caller's goroutine.
// Unlike a goroutine that waits for Done, it needs almost no memory until then. f may wait only for locks: other
// functions and Close wait for it.
func (p *Process) AfterEnd(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.HasEnded() {
		go f()
		return
	}
	p.onEnded = append(p.onEnded, f)
}

// conclude sets the Exit of a head, closes done and calls the functions of AfterEnd.
func (p *Process) conclude(exit Exit, handedOver bool) {
	p.mu.Lock()
	p.exit, p.handedOver = exit, handedOver
	p.mu.Unlock()
	p.supervisor.recordExit(p)
	p.mu.Lock()
	close(p.done)
	callbacks := p.onEnded
	p.onEnded = nil
	p.mu.Unlock()
	for _, f := range callbacks {
		f()
	}
}

// Exit returns how the process ended; the zero Exit until Done is closed.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Logs returns the newest lines of output, at most 200, oldest first.
func (p *Process) Logs() []logs.Line { return p.logs.Lines() }

// readLogs starts the readers of stdout, unless it carries the protocol, and stderr.
func (p *Process) readLogs() {
	if stdout := p.pipes.logs[0]; stdout != nil {
		p.readers.Go(func() { p.readLog("stdout", stdout) })
	}
	p.readers.Go(func() { p.readLog("stderr", p.pipes.logs[1]) })
}

// readLog stores and logs what the process writes.
func (p *Process) readLog(stream string, in io.Reader) {
	err := readLines(in, func(text string) { p.logs.Add(stream, text) })
	if err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) { // the latter by HandOver
		p.logger.Warn("cannot read the output of a process", "stream", stream, "error", err)
	}
}
