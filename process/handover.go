package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/process/keeper"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// KeepFor is how long processes that were handed over wait for the next supervisor of their state directory.
const KeepFor = 2 * time.Minute

// keptFormat is the version of keptRecord. A supervisor takes over only what it reads completely.
const keptFormat = 1

// keptRecord is what the next supervisor needs to know about a process, in addition to its descriptors.
type keptRecord struct {
	record
	Format  int       `json:"format"`
	ReadyAt time.Time `json:"ready_at"`
	Spec    spec.Spec `json:"spec"`
	Address string    `json:"address,omitempty"`
	Port    int       `json:"port,omitempty"`
	Frozen  bool      `json:"frozen,omitempty"`
	Process int64     `json:"process"`        // its number within the incarnation
	Used    *Use      `json:"used,omitempty"` // see Process.Used
	// Greeting is that of an MCP server.
	Greeting json.RawMessage `json:"greeting,omitempty"`
	Era      string          `json:"era,omitempty"`
	Binding  *Binding        `json:"binding,omitempty"`

	Limits     spec.Limits                 `json:"limits"`
	Mechanisms map[string]limits.Mechanism `json:"mechanisms,omitempty"`
	Logs       []logs.Line                 `json:"logs,omitempty"`
	Before     map[string]int64            `json:"before,omitempty"` // see Process.before
	Wire       wire.State                  `json:"wire,omitzero"`
	// Files names the descriptors in their order.
	Files []string `json:"files"`
	// Note is the caller's.
	Note json.RawMessage `json:"note,omitempty"`
}

// The names of descriptors.
const (
	fileStdout    = "stdout"
	fileStderr    = "stderr"
	fileIn        = "in"  // the protocol, as the agent reads it
	fileOut       = "out" // and writes it
	fileNamespace = "namespace"
)

// Kept is a process that was taken over from an earlier supervisor, and the note that its caller of HandOver made.
type Kept struct {
	*Process
	Note json.RawMessage
}

// CanKeep returns why this supervisor cannot hand its processes over; nil if it can.
func CanKeep(stateDir string) error {
	if runtime.GOOS != "linux" {
		return coded(CodeInvalid, nil, "processes can be kept across a restart of the agent on Linux only, not on %s",
			runtime.GOOS)
	}
	if os.Getpid() == 1 {
		return coded(CodeInvalid, nil,
			"the agent is process 1 of its container, so its end ends all processes; run it outside a container, or under an "+
				"init process")
	}
	path, err := filepath.Abs(filepath.Join(stateDir, keeper.SocketName))
	if err == nil && len(path) > maxSocketPath {
		return coded(CodeInvalid, nil,
			"the path of the state directory is too long for a socket in it: %s has %d bytes, at most %d fit", path, len(path),
			maxSocketPath)
	}
	return err
}

// HandOver hands the ready processes to a keeper, which holds them for KeepFor: until the next supervisor on this state
// directory takes them over. note is kept with each. Nothing may call the workers any more; HandOver waits, until ctx
// ends, for what is in progress, and kills a worker that is not quiet by then; the start of the keeper has a limit of
// its own. It returns the processes that were handed over, whose Done is closed. All others keep running until Close.
func (s *Supervisor) HandOver(ctx context.Context, note func(*Process) json.RawMessage) ([]*Process, error) {
	if err := CanKeep(s.state.path); err != nil {
		return nil, err
	}
	pipe, err := s.reaper.Pipe()
	if err != nil {
		return nil, err
	}
	defer pipe.Close()
	var mu sync.Mutex // guards prepared and items
	var prepared []*Process
	var items []keeper.Item
	var group sync.WaitGroup
	for _, p := range s.all() {
		if p.isTemplate() || p.vacant() || !p.isReady() || p.isEnding() || p.spec.Pool.Kind != spec.KindProcess {
			continue
		}
		group.Go(func() {
			item, err := p.prepare(ctx, note)
			if err != nil {
				p.logger.Warn("cannot hand a process over", "error", err)
				p.Kill("the agent is being replaced, and this process could not be handed over: " + err.Error())
				return
			}
			mu.Lock()
			defer mu.Unlock()
			prepared, items = append(prepared, p), append(items, item)
		})
	}
	group.Wait()
	if len(items) == 0 {
		return nil, nil
	}
	for _, item := range items {
		defer item.Close()
	}
	// Not within ctx: a worker that was not quiet may have used it up.
	if err := keeper.Start(context.WithoutCancel(ctx), filepath.Join(s.state.path, keeper.SocketName), pipe, items,
		s.config.keepFor); err != nil {
		for _, p := range prepared {
			p.Kill("the agent is being replaced, and no keeper took this process")
		}
		return nil, err
	}
	s.mu.Lock()
	s.keeping = true
	s.mu.Unlock()
	var kept []*Process
	for _, p := range prepared {
		p.updateTermination(func(t *termination) { t.handedOver = true })
		<-p.done
		if p.head.HandedOver() {
			kept = append(kept, p.head)
		}
	}
	return kept, nil
}

// HandedOver reports whether the process continues under a keeper or another supervisor, although Done is closed.
func (p *Process) HandedOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handedOver
}

func (p *Process) isEnding() bool {
	t := p.currentTermination()
	return t.stopped || t.killed()
}

// prepare stops reading from and writing to the process, and returns what the next supervisor gets.
func (p *Process) prepare(ctx context.Context, note func(*Process) json.RawMessage) (item keeper.Item, err error) {
	r := keptRecord{
		record: p.record(), Format: keptFormat, ReadyAt: p.Info().ReadyAt, Spec: *p.spec, Address: p.Info().Address,
		Process: p.number, Used: p.used.Load(), Greeting: p.Greeting(), Era: p.Era(), Binding: p.binding,
		Port:   p.plan.address.port,
		Limits: p.Limits(), Mechanisms: p.LimitMechanisms(), Before: p.before,
	}
	defer func() {
		if err != nil {
			item.Close()
		}
	}()
	add := func(name string, file *os.File) {
		r.Files = append(r.Files, name)
		item.Files = append(item.Files, file)
	}
	if p.conn != nil {
		var in, out *os.File
		if r.Wire, in, out, err = wire.HandOver(ctx, p.conn); err != nil {
			return item, err
		}
		add(fileIn, in)
		add(fileOut, out)
	}
	for i, name := range []string{fileStdout, fileStderr} {
		log := p.pipes.logs[i]
		if log == nil {
			continue
		}
		copied, err := wire.Duplicate(log)
		if err != nil {
			return item, err
		}
		add(name, copied)
		if err := log.SetReadDeadline(time.Unix(1, 0)); err != nil {
			return item, fmt.Errorf("stop reading %s: %w", name, err)
		}
	}
	p.readers.Wait()
	p.probing.RLock()
	defer p.probing.RUnlock()
	for _, namespace := range p.namespaces {
		copied, err := wire.Duplicate(namespace)
		if err != nil {
			return item, err
		}
		add(fileNamespace, copied)
	}
	r.Frozen = p.freezer.hand()
	r.Logs, r.Note = p.Logs(), note(p.head)
	item.Key = r.Key
	item.Record, err = json.Marshal(r)
	return item, err
}

// takeOver takes over what an earlier supervisor has handed over. It returns nothing where that fails: the sweep kills
// those processes.
func (s *Supervisor) takeOver(ctx context.Context) (*keeper.Takeover, []keptRecord) {
	socket := filepath.Join(s.state.path, keeper.SocketName)
	taken, err := keeper.Take(ctx, socket)
	if err == nil && taken == nil {
		return nil, nil
	}
	if err == nil && !s.config.TakeOver {
		err = errors.New("this agent keeps no processes")
	}
	var records []keptRecord
	if err == nil {
		for _, item := range taken.Items {
			var r keptRecord
			if err = json.Unmarshal(item.Record, &r); err != nil {
				break
			}
			if r.Format != keptFormat || len(r.Files) != len(item.Files) {
				err = errors.New("another release of the agent handed them over")
				break
			}
			if !tree.SameNumberSpace(r.Space) {
				err = errors.New("the previous agent ran in another PID namespace (container), whose processes this one cannot see")
				break
			}
			records = append(records, r)
		}
	}
	if err != nil {
		s.logger.Warn("cannot take over the processes of the previous agent; killing them", "error", err)
		taken.Abort()
		return nil, nil
	}
	return taken, records
}

// resume supervises the processes of a take-over that are still alive. The reaper and the state directory know them.
func (s *Supervisor) resume(taken *keeper.Takeover, records []keptRecord) error {
	if taken == nil {
		return nil
	}
	for _, r := range records { // before one of them ends, and this agent kills what has escaped
		r.Key.Mark.Restore()
	}
	for i, r := range records {
		p, err := s.resumeOne(r, taken.Items[i])
		if err != nil {
			s.logger.Warn("cannot take over a process; killing it", "worker", r.Worker, "incarnation", r.Incarnation,
				"pid", r.Key.Root.PID, "error", err)
			if report := tree.Kill(r.Key); !report.Complete() {
				s.logger.Error("cannot kill a process that was not taken over", "worker", r.Worker, "report", report.String())
			} else {
				program{p}.release()
			}
			continue
		}
		s.logger.Info("took over a worker process", "worker", r.Worker, "incarnation", r.Incarnation, "pid", r.Key.Root.PID)
		s.kept = append(s.kept, Kept{p, r.Note})
	}
	return taken.Done()
}

// TakenOver returns the processes that Open has taken over.
func (s *Supervisor) TakenOver() []Kept { return slices.Clone(s.kept) }

// resumeOne returns what is to be released also with an error.
func (s *Supervisor) resumeOne(r keptRecord, item keeper.Item) (p *Process, err error) {
	pl, err := s.resumePlan(r)
	p = s.newProcess(Launch{Worker: r.Worker, Incarnation: r.Incarnation, Spec: r.Spec, era: r.Era}, &pl, r.Limits)
	defer func() {
		if err != nil {
			item.Close()
			p.logs.Close()
		}
	}()
	if err != nil {
		return p, err
	}
	p.root, p.startedAt, p.readyAt, p.address, p.freezer.frozen = r.Key.Root, r.StartedAt, r.ReadyAt, r.Address, r.Frozen
	p.kind, p.number = program{p}, r.Process
	p.used.Store(r.Used)
	p.greeting, p.binding, p.before = r.Greeting, r.Binding, r.Before
	places := map[string]**os.File{fileIn: &p.pipes.in, fileOut: &p.pipes.out, fileStdout: &p.pipes.logs[0],
		fileStderr: &p.pipes.logs[1]}
	for i, name := range r.Files {
		place, known := places[name]
		switch {
		case known:
			*place = item.Files[i]
		case name == fileNamespace:
			p.namespaces = append(p.namespaces, item.Files[i])
		default:
			return p, fmt.Errorf("unknown descriptor %q", name)
		}
	}
	if !p.root.Exists() {
		return p, errors.New("it has ended")
	}
	p.logs.Resume(r.Logs)
	p.meter.Start(p.startedAt, 0)
	p.child = tree.Reclaim(p.root)
	p.awaitExit = tree.WatchExit(p.root)
	if p.conn, p.connErr = p.connect(&r.Wire); p.connErr != nil {
		return p, p.connErr
	}
	p.readLogs()
	s.supervise(p, s.live)
	return p, nil
}

// resumePlan is the plan of a process that an earlier supervisor has started.
func (s *Supervisor) resumePlan(r keptRecord) (plan, error) {
	p := plan{
		cookie: r.Key.Cookie, mark: r.Key.Mark, umask: -1, fork: s.config.fork, mechanisms: r.Mechanisms,
		cgroup: s.cgroups.Find(r.Key.Cgroup),
		limits: limits.NewPerProcess(r.Limits, limits.AssignCores(r.Limits, r.Worker, s.host.Cores)),
	}
	if r.Port != 0 {
		p.address = address{port: r.Port, dir: r.SocketDir, socket: filepath.Join(r.SocketDir, socketFile)}
		s.ports.take(r.Port)
	}
	err := p.complete(r.Worker, r.Spec, r.Binding)
	return p, err
}
