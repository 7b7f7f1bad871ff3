package process

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/reaper"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// maxExits is how many ended incarnations Get finds.
const maxExits = 1000

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
	// Keep lists older incarnations of the worker that keep running: the one to take over from, and those that finish
	// their calls. All others are killed.
	Keep []int64

	template *template // whose fork the process is
	after    *Process  // which the process succeeds in its incarnation
	binding  *Binding  // the key that the process is started for; nil for none
	era      string    // see Process.Era
}

type key struct {
	worker      string
	incarnation int64
}

func (k key) String() string { return fmt.Sprintf("%s incarnation %d", k.worker, k.incarnation) }

// Supervisor owns the subprocesses of one host. All methods are safe for concurrent use.
type Supervisor struct {
	config      Config
	logger      *slog.Logger
	state       *stateDir
	logs        *logs.Store
	reaper      *reaper.Client
	cgroups     *limits.Cgroups // nil if unavailable
	noCgroups   string          // why there are none
	host        limits.Host
	ports       portAllocator
	pss         tree.PSSBudget
	rootWorkers sync.Once       // logs that workers run as root
	ctx         context.Context // ends when Close has stopped everything
	cancel      context.CancelFunc
	loops       sync.WaitGroup // sampling, enforcing and reaping orphans
	processes   sync.WaitGroup // starts in progress and live processes

	mu            sync.Mutex // guards the fields below
	closing       bool
	closed        chan struct{} // closed when the first Close has finished
	starting      map[key]*start
	live          map[key]*Process
	templates     []*template // those that processes may be forks of
	templateCount int64       // how many there have been
	// templateProcesses are the processes that never serve: those of all templates, and of era.
	templateProcesses map[key]*Process
	ended             map[key]*Process
	endOrder          []key // of ended, oldest first
	keeping           bool  // HandOver has left processes to a keeper
	kept              []Kept
	abandoned         map[string]int        // by function, see AbandonedFunctions
	eras              map[string]*eraAnswer // by pool
	eraCount          int64                 // how many there have been
}

// StateID returns the random id of the state directory, which is made once: supervisors with the same one follow each
// other on one directory.
func (s *Supervisor) StateID() string { return s.state.id }

// Logs returns the logs of the workers of this host, which are readable until Close.
func (s *Supervisor) Logs() *logs.Store { return s.logs }

// Cgroups returns the cgroup controllers that enforce limits here, sorted, and why there are none if cgroups cannot be
// used.
func (s *Supervisor) Cgroups() (controllers []string, unavailable string) {
	return slices.Sorted(maps.Keys(s.host.Controllers)), s.noCgroups
}

// Get returns a live incarnation, or a record of one of the last 1,000 that ended here, whose Done is closed: its Exit,
// its LatestSample and what it has Served.
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

// Newest returns the highest incarnation of a worker that is starting, lives, or has an exit that Get finds; 0 if there
// is none.
func (s *Supervisor) Newest(worker string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newestLocked(worker)
}

// newestLocked is Newest. A start that is late by more exits than Get finds is not recognised as superseded; its
// workflow is not in that incarnation any more.
func (s *Supervisor) newestLocked(worker string) (newest int64) {
	known := func(k key) {
		if k.worker == worker {
			newest = max(newest, k.incarnation)
		}
	}
	for k := range s.starting {
		known(k)
	}
	for k := range s.live {
		known(k)
	}
	for k := range s.ended {
		known(k)
	}
	return newest
}

// List returns the live incarnations, starting ones included, ordered by worker and incarnation.
func (s *Supervisor) List() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.live), func(a, b *Process) int {
		return cmp.Or(strings.Compare(a.Worker(), b.Worker()), cmp.Compare(a.Incarnation(), b.Incarnation()))
	})
}

// all returns the newest process of each live incarnation, and the templates.
func (s *Supervisor) all() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.templateProcesses))
	for _, p := range s.live {
		all = append(all, p.now())
	}
	return all
}

// Live returns the number of live incarnations, starting ones included.
func (s *Supervisor) Live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

var errClosing = coded(CodeUnavailable, nil, "the agent is shutting down")

// Close rejects further starts, stops all processes with their own grace, and kills the rest when ctx ends. It returns
// when all processes, the reaper and the lock are gone, and fails with ctx's error if it had to cut a grace short.
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

	for _, p := range s.all() {
		if p.isTemplate() {
			p.Kill(errClosing.Message)
		} else {
			p.requestStop(0)
		}
	}
	gone := sleep.Done(s.processes.Wait)
	var err error
	select {
	case <-gone:
	case <-ctx.Done():
		err = fmt.Errorf("stop all processes: %w", ctx.Err())
		for _, p := range s.List() {
			p.Kill("agent shutdown timed out")
		}
		<-gone
	}
	s.cancel()
	s.loops.Wait()
	s.mu.Lock()
	keeping := s.keeping
	s.mu.Unlock()
	if keeping {
		s.reaper.Leave()
	} else {
		s.reaper.Close()
	}
	s.cgroups.Close()
	s.logs.Close()
	s.state.close()
	return err
}

// ownsEntry reports whether e, dead or alive, belongs to a tree of this supervisor.
func (s *Supervisor) ownsEntry(e *tree.Entry) bool {
	return slices.ContainsFunc(s.all(), func(p *Process) bool {
		return p.hasTree() && e.Session == p.root.PID || p.members.Has(e.Identity)
	})
}

// escapeInterval is how often adopted processes are checked.
const escapeInterval = 5 * time.Second

// escapeLoop kills escaped processes until ctx ends.
func (s *Supervisor) escapeLoop(ctx context.Context) {
	defer tree.OwnTrees(s.ownsEntry)()
	for now := range sleep.Ticks(ctx.Done(), escapeInterval) {
		s.killEscaped()
		s.endUnusedTemplates(now)
	}
}

// killEscaped kills the adopted descendants of workers that belong to no incarnation.
func (s *Supervisor) killEscaped() {
	killed, err := tree.KillEscaped()
	if err != nil {
		s.logger.Error("cannot kill processes that escaped from a worker", "error", err)
	} else if killed > 0 {
		s.logger.Warn("killed processes that escaped from a worker", "processes", killed)
	}
}

// recordExit moves a process from the live to the ended ones, of which it drops the oldest.
func (s *Supervisor) recordExit(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := p.key()
	if s.templateProcesses[k] == p {
		delete(s.templateProcesses, k)
		return
	}
	delete(s.live, k)
	s.ended[k] = p.exitRecord()
	s.endOrder = append(s.endOrder, k)
	if len(s.endOrder) > maxExits {
		delete(s.ended, s.endOrder[0])
		s.endOrder = slices.Delete(s.endOrder, 0, 1)
	}
}

// Contains reports whether a process belongs to the tree of a live incarnation, so that it is a worker's and not a
// client's or the operator's. It costs some reads of /proc for each of the process's ancestors.
func (s *Supervisor) Contains(pid int) bool {
	return contain(s.all(), pid)
}

func contain(live []*Process, pid int) bool {
	roots, cookies := make(map[int]bool, len(live)), make(map[string]bool, len(live))
	for _, p := range live {
		if p.hasTree() {
			roots[p.root.PID], cookies[p.plan.cookie] = true, true
		}
	}
	return tree.Belongs(pid, roots, cookies, func(id tree.Identity) bool {
		return slices.ContainsFunc(live, func(p *Process) bool { return p.members.Has(id) })
	})
}
