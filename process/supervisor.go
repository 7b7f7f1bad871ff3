package process

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tempool/tempool/spec"
)

const (
	// DefaultSampleEvery is the rhythm of the samples taken unasked.
	DefaultSampleEvery = 10 * time.Second
	// rememberedExits is how many ended incarnations Get still knows.
	rememberedExits = 1000
	// rememberedLogs is how many of those are kept as they were, with all their log lines; of the others only the remains are.
	rememberedLogs = 20
)

// Config is what a Supervisor needs to know. StateDir and HostID have no default.
type Config struct {
	// StateDir is a folder of this host's that one Supervisor at a time has to itself. It is made where it is missing.
	StateDir string
	HostID   string
	// Logger gets the output of the subprocesses and what happens to them. Default: slog.Default().
	Logger *slog.Logger
	// Concurrency bounds the starts at one time of all pools whose spec sets no start.concurrency. Default: the number of cores.
	Concurrency int
	// SampleEvery is the rhythm of the samples taken unasked. Default: DefaultSampleEvery.
	SampleEvery time.Duration
	// EnforceEvery is the rhythm in which limits are looked after that nothing stronger holds. Default: DefaultEnforceEvery.
	EnforceEvery time.Duration
	// HostCall answers what subprocesses ask of their host. It is called concurrently and must honour ctx. Default: refuse.
	HostCall func(ctx context.Context, call HostCall) ([]byte, error)

	hierarchy func() (hierarchy, error) // default: hostHierarchy
	fork      func(*exec.Cmd) error     // default: startChild
}

// HostCall is a request that a subprocess made of its host.
type HostCall struct {
	Worker      string
	Incarnation int64
	Method      string
	Headers     map[string]string
	Payload     []byte
}

// Launch names the incarnation to start and what to run for it.
type Launch struct {
	Worker      string // such as python/0
	Incarnation int64  // from 1
	Spec        spec.Spec
	// Keep lists older incarnations of the worker that live on beside this one: the one it is to take over from, and those
	// that finish their calls. All others are killed.
	Keep []int64
}

type key struct {
	worker      string
	incarnation int64
}

func (k key) String() string { return fmt.Sprintf("%s incarnation %d", k.worker, k.incarnation) }

// Supervisor owns the subprocesses of one host. All methods are safe for concurrent use.
type Supervisor struct {
	config    Config
	logger    *slog.Logger
	folder    *stateFolder
	reaper    *reaperLink
	cgroups   *cgroups // nil where the host's cannot be used
	hostMeans hostMeans
	ports     portBook
	snapshots snapshots
	life      context.Context // ends when Close has stopped everything
	end       context.CancelFunc
	loops     sync.WaitGroup // sampler and orphan reaper
	processes sync.WaitGroup // starts in progress and processes that live

	mu       sync.Mutex
	closing  bool
	closed   chan struct{} // closed when the first Close is through
	newest   map[string]int64
	starting map[key]*start
	live     map[key]*Process
	ended    map[key]*Process
	endOrder []key // of ended, oldest first
	gates    map[string]*startGate
	gate     *semaphore.Weighted // for pools without a concurrency of their own
}

// Open takes the state folder, becomes the parent of orphaned descendants, ends what an earlier Supervisor on the folder left
// running, and starts the reaper. It fails with CodeUnavailable and the holder's PID while another process has the folder.
func Open(ctx context.Context, config Config) (*Supervisor, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if config.StateDir == "" || config.HostID == "" || strings.ContainsAny(config.HostID, "\x00\n") {
		return nil, coded(CodeInvalid, nil, "a supervisor needs a state folder and a host id of one line")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.SampleEvery <= 0 {
		config.SampleEvery = DefaultSampleEvery
	}
	if config.EnforceEvery <= 0 {
		config.EnforceEvery = DefaultEnforceEvery
	}
	if config.Concurrency <= 0 {
		config.Concurrency = runtime.NumCPU()
	}
	if config.fork == nil {
		config.fork = startChild
	}
	if config.hierarchy == nil {
		config.hierarchy = hostHierarchy
	}
	folder, err := openStateFolder(config.StateDir, config.HostID)
	if err != nil {
		return nil, err
	}
	s := &Supervisor{
		config: config, logger: config.Logger, folder: folder, closed: make(chan struct{}),
		newest: make(map[string]int64), starting: make(map[key]*start), live: make(map[key]*Process), ended: make(map[key]*Process),
		gates: make(map[string]*startGate), gate: semaphore.NewWeighted(int64(config.Concurrency)),
	}
	if err := s.begin(ctx); err != nil {
		folder.close()
		return nil, err
	}
	return s, nil
}

func (s *Supervisor) begin(ctx context.Context) error {
	if err := becomeSubreaper(); err != nil {
		s.logger.Warn("orphaned descendants will not be adopted", "error", err)
	}
	s.takeCgroups()
	left, err := s.folder.sweep(s.config.HostID, s.logger)
	if err != nil {
		return coded(CodeUnavailable, err, "end what an earlier agent left running")
	}
	s.cgroups.sweep(s.logger)
	reaper, err := openReaperLink(ctx, s.config.HostID, s.logger)
	if err != nil {
		return err
	}
	s.reaper = reaper
	for _, key := range left {
		reaper.watch(key)
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.loops.Go(func() { s.reapOrphans(s.life) })
	s.loops.Go(func() { s.sampleAll(s.life) })
	s.loops.Go(func() { s.enforceAll(s.life) })
	return nil
}

// takeCgroups looks what the host holds limits with. It comes before the first child, which is born where this process is then.
func (s *Supervisor) takeCgroups() {
	s.hostMeans = kernelMeans()
	h, err := s.config.hierarchy()
	if err == nil {
		s.cgroups, err = openCgroups(h, s.folder.id)
	}
	if err == nil {
		if err = s.cgroups.try(); err != nil {
			s.cgroups.close()
			s.cgroups = nil
		}
	}
	if err != nil {
		s.logger.Info("limits of memory, CPU and processes are held by looking, since the host lends no control groups", "reason", err)
		return
	}
	s.hostMeans.cgroup = s.cgroups.has
}

// Get returns an incarnation that lives here, or that ended here and is among the last 1,000 to do so; then its Done is closed.
// Of one that is not among the newest 20 of those only how it ended is left: it has no Conn, and its last ten log lines.
func (s *Supervisor) Get(worker string, incarnation int64) (*Process, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{worker, incarnation}
	if p, found := s.live[k]; found {
		return p, true
	}
	p, found := s.ended[k]
	return p, found
}

// Newest returns the highest incarnation of a worker that was started here since Open, or 0.
func (s *Supervisor) Newest(worker string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest[worker]
}

// List returns the incarnations that live here, starting ones included, ordered by worker and incarnation.
func (s *Supervisor) List() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Process, 0, len(s.live))
	for _, p := range s.live {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Process) int {
		return cmp.Or(strings.Compare(a.Worker(), b.Worker()), cmp.Compare(a.Incarnation(), b.Incarnation()))
	})
	return list
}

// Live returns how many incarnations live here, starting ones included.
func (s *Supervisor) Live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// Close refuses further starts, stops all processes with their own grace, and KILLs what is left when ctx ends. It returns when
// all processes, the reaper and the lock are gone, and fails with ctx's error if it had to cut a grace short.
func (s *Supervisor) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	for _, st := range s.starting {
		st.cancel(errClosing)
	}
	s.mu.Unlock()
	if !first {
		select {
		case <-s.closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(s.closed)

	for _, p := range s.List() {
		p.requestStop(0)
	}
	gone := make(chan struct{})
	go func() {
		s.processes.Wait()
		close(gone)
	}()
	var cut error
	select {
	case <-gone:
	case <-ctx.Done():
		cut = fmt.Errorf("stop all processes: %w", ctx.Err())
		for _, p := range s.List() {
			p.Kill("the agent had no more time to stop it")
		}
		<-gone
	}
	s.end()
	s.loops.Wait()
	s.reaper.close()
	s.cgroups.close()
	s.folder.close()
	return cut
}

var errClosing = coded(CodeUnavailable, nil, "the agent is shutting down and starts nothing")

// isMember reports whether r, dead or alive, belongs to a tree of this supervisor's.
func (s *Supervisor) isMember(r *row) bool {
	for _, p := range s.List() {
		if r.sid == p.root.PID || p.known.has(r.identity) {
			return true
		}
	}
	return false
}

// remember moves a process that ended from the living to the bounded memory of exits.
func (s *Supervisor) remember(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := p.key()
	delete(s.live, k)
	s.ended[k] = p
	s.endOrder = append(s.endOrder, k)
	if n := len(s.endOrder); n > rememberedLogs {
		old := s.endOrder[n-1-rememberedLogs]
		r := s.ended[old].remains()
		if n-2 >= rememberedLogs { // most had the same limits as the one before, held by the same means
			if before := s.ended[s.endOrder[n-2-rememberedLogs]]; maps.Equal(r.limitMeans, before.limitMeans) {
				r.limitMeans = before.limitMeans
			}
		}
		s.ended[old] = r
	}
	if len(s.endOrder) > rememberedExits {
		delete(s.ended, s.endOrder[0])
		s.endOrder = slices.Delete(s.endOrder, 0, 1)
	}
}
