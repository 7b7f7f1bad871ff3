package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// EnvTemplate asks a program to be a template (start.fork): the descriptor of its control socket.
const EnvTemplate = "TEMPOOL_TEMPLATE"

// protocolTemplate is what a template speaks. No spec has it: docs/protocol.md describes it.
const protocolTemplate = "template"

const (
	// forkTimeout is how long a template may take for one fork, at most a third of start.timeout; one that takes longer is
	// replaced.
	forkTimeout = 10 * time.Second
	// templateLinger is how long a template outlives the last process of its spec.
	templateLinger = time.Minute
	// maxTemplateReply bounds a line from a template, in bytes.
	maxTemplateReply = 64 << 10
)

// template is a process that has loaded the program of one spec and never serves: the spec's processes are its forks.
// It is a tree of its own, which the supervisor measures and limits like a worker's, and does not list.
type template struct {
	spec    *spec.Spec
	ready   chan struct{} // closed once the process has reported ready, or err is set
	process *Process
	control *net.UnixConn
	err     error

	controlLock chan struct{} // holds one token; whoever takes it may use control

	// Guarded by the supervisor's mu.
	usedAt  time.Time
	dropped bool // no further process is its fork
}

// errTemplate means that a template did not fork; it has been killed.
var errTemplate = errors.New("the template did not fork")

// readyTemplate returns the template of a spec, and starts one where there is none. It waits until that is ready.
func (s *Supervisor) readyTemplate(ctx context.Context, sp *spec.Spec) (*template, error) {
	if !tree.HasMarks() {
		return nil, coded(CodeInvalid, nil, "start.fork needs a Linux host on which processes can be marked; remove it")
	}
	s.mu.Lock()
	i := slices.IndexFunc(s.templates, func(t *template) bool {
		return t.spec.Pool.Name == sp.Pool.Name && reflect.DeepEqual(t.spec, sp)
	})
	var t *template
	if i >= 0 {
		t = s.templates[i]
	} else {
		t = &template{spec: sp, ready: make(chan struct{}), controlLock: make(chan struct{}, 1)}
		s.templates = append(s.templates, t)
		s.templateCount++
		number := s.templateCount
		s.processes.Go(func() {
			defer close(t.ready)
			if t.err = s.startTemplate(t, number); t.err != nil {
				s.dropTemplate(t)
			}
		})
	}
	t.usedAt = time.Now()
	s.mu.Unlock()
	select {
	case <-t.ready:
		return t, t.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the template has not loaded the program yet: %w", context.Cause(ctx))
	}
}

// startTemplate starts the process of a template and returns when it reports ready.
func (s *Supervisor) startTemplate(t *template, number int64) error {
	sp := *t.spec
	sp.Pool.Protocol = protocolTemplate
	sp.Limits.CPUAffinityEach = 0 // the cores are each fork's own
	l := Launch{Worker: sp.Pool.Name + "/template", Incarnation: number, Spec: sp}
	p, err := s.newKind(l)
	if err == nil {
		err = p.kind.start(s.ctx)
	}
	if err != nil {
		return fmt.Errorf("start the template: %w", markExhausted(err))
	}
	// Before the supervision of the process, which closes the pipe at its end.
	conn, err := net.FileConn(p.pipes.out)
	if err == nil {
		t.control = conn.(*net.UnixConn) // of a pair of Unix sockets
	}
	s.supervise(p, s.templateProcesses)
	s.mu.Lock()
	t.process = p
	unwanted := s.closing || t.dropped
	s.mu.Unlock()
	p.AfterEnd(func() {
		s.dropTemplate(t)
		if t.control != nil {
			t.control.Close()
		}
	})
	if unwanted {
		p.Kill("template is not wanted any more")
	}
	if err == nil {
		_, err = t.receive(time.Now().Add(sp.Start.Timeout.D()))
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it did not report ready within start.timeout (%s); a program must speak the template protocol, "+
				"as the Python SDK does", sp.Start.Timeout)
		}
		if !unwanted && sleep.For(p.exited, exitTimeoutAfterClose) { // it is still there
			p.fail("template did not become ready: " + err.Error())
		}
		<-p.done
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.dropped {
			return fmt.Errorf("%w: %s", errTemplate, p.Exit().Reason)
		}
		return fmt.Errorf("the template (start.fork) ended: %s", p.Exit().Reason)
	}
	t.controlLock <- struct{}{}
	s.logger.Info("template is ready", "pool", sp.Pool.Name, "pid", p.root.PID, "took", time.Since(p.startedAt))
	return nil
}

// forkRequest asks a template for a process. The descriptors come with it: those that become Files in the process, then
// the gate.
type forkRequest struct {
	Files []int             `json:"files"`
	Env   map[string]string `json:"env"`
	// Network is spec.NetworkNone for a network namespace of the process's own.
	Network string `json:"network,omitempty"`
}

// templateReply is a line from a template: that it is ready, or the answer of a process that it has forked.
type templateReply struct {
	Template int    `json:"template"`
	PID      int    `json:"pid"`
	Error    string `json:"error"`
}

// receive reads one line.
func (t *template) receive(deadline time.Time) (templateReply, error) {
	var reply templateReply
	if err := t.control.SetReadDeadline(deadline); err != nil {
		return reply, err
	}
	answer := json.NewDecoder(io.LimitReader(t.control, maxTemplateReply)) // nothing follows it before the next request
	if err := answer.Decode(&reply); err != nil {
		return reply, fmt.Errorf("read its answer, JSON of at most %d bytes: %w", maxTemplateReply, err)
	}
	if reply.Error != "" {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}

// fork makes p a fork of the template that carries the mark of p, has its cgroup and cores, and is registered. It waits
// at its gate until the caller writes a byte to that; if the caller closes the gate, it exits. fork waits for others
// until ctx ends.
func (t *template) fork(ctx context.Context, p *Process, cmd *exec.Cmd) (gate *os.File, err error) {
	select {
	case <-t.controlLock:
		defer func() { t.controlLock <- struct{}{} }()
	case <-t.process.done:
		return nil, fmt.Errorf("%w: it has ended: %s", errTemplate, t.process.Exit().Reason)
	case <-ctx.Done():
		return nil, fmt.Errorf("the template is busy with other forks: %w", context.Cause(ctx))
	}
	timeout, cancel := context.WithTimeout(p.supervisor.ctx, min(forkTimeout, p.spec.Start.Timeout.D()/3))
	defer cancel()
	theirs, gate, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	pid, err := t.request(timeout, p, cmd, theirs)
	if err != nil {
		gate.Close()
		if !errors.Is(err, errRefused) {
			t.process.fail("template did not fork: " + err.Error())
			err = fmt.Errorf("%w: %w", errTemplate, err)
		}
		return nil, err
	}
	if err = t.adopt(timeout, p, pid); err == nil {
		err = p.register()
	}
	if err != nil {
		if p.child {
			_ = tree.SignalGroup(pid, unix.SIGKILL) // a program may take the end of its gate for the start
			_, _ = tree.ReapChild(pid)
		}
		gate.Close()
		return nil, fmt.Errorf("adopt PID %d of the template: %w", pid, err)
	}
	return gate, nil
}

// errRefused means that the process that was forked could not be prepared.
var errRefused = errors.New("the fork failed")

func (t *template) request(ctx context.Context, p *Process, cmd *exec.Cmd, gate *os.File) (pid int, err error) {
	r := forkRequest{Env: p.plan.ours, Network: p.spec.Sandbox.Network}
	var rights []int
	for number, file := range append([]*os.File{asFile(cmd.Stdin), asFile(cmd.Stdout), asFile(cmd.Stderr)},
		cmd.ExtraFiles...) {
		if file != nil {
			r.Files, rights = append(r.Files, number), append(rights, int(file.Fd()))
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	deadline, _ := ctx.Deadline()
	if err := t.control.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	rights = append(rights, int(gate.Fd()))
	if _, _, err := t.control.WriteMsgUnix(append(text, '\n'), unix.UnixRights(rights...), nil); err != nil {
		return 0, err
	}
	reply, err := t.receive(deadline)
	if reply.Error != "" {
		return 0, fmt.Errorf("%w: %s", errRefused, reply.Error)
	}
	if err == nil && reply.PID <= 1 {
		err = fmt.Errorf("it answered with PID %d", reply.PID)
	}
	return reply.PID, err
}

func asFile(stream any) *os.File {
	file, _ := stream.(*os.File)
	return file
}

// adopt makes the fork the root of p's tree, under p's limits.
func (t *template) adopt(ctx context.Context, p *Process, pid int) error {
	mark := t.process.plan.mark.Below()
	if mark == 0 {
		return errors.New("too few marks are left on this host")
	}
	root, err := tree.Adopt(ctx, pid, t.process.plan.mark, mark)
	if err != nil {
		mark.Retire()
		return err
	}
	p.plan.mark.Retire()
	p.plan.mark, p.root, p.child = mark, root, true
	t.process.members.Exclude(root)
	err = p.plan.cgroup.Enter(pid)
	if cores := p.plan.limits.Affinity; err == nil && !slices.Equal(cores, t.process.plan.limits.Affinity) {
		err = launcher.Bind(pid, cores) // the other limits are the template's
	}
	if err == nil && p.spec.Sandbox.Network == spec.NetworkNone {
		var own os.FileInfo
		theirs, statErr := os.Stat(fmt.Sprintf("/proc/%d/ns/net", t.process.root.PID))
		own, err = os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil && (statErr != nil || os.SameFile(own, theirs)) {
			err = errors.New("it has no network namespace of its own")
		}
	}
	if err == nil {
		p.namespaces, err = p.plan.sandbox.Open(pid)
	}
	return err
}

// dropTemplate lets no further process be a fork of a template.
func (s *Supervisor) dropTemplate(t *template) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.templates = slices.DeleteFunc(s.templates, func(o *template) bool { return o == t })
}

// ReplaceTemplates ends the templates of a pool, for example because files have changed that they have loaded. Their
// forks continue, and the next start makes a new template.
func (s *Supervisor) ReplaceTemplates(pool string) {
	s.endTemplates("template is being replaced", func(t *template) bool { return t.spec.Pool.Name == pool })
}

// endUnusedTemplates ends the templates of specs that no process has had for a while. One that is still loading, for
// which there is start.timeout, is in use.
func (s *Supervisor) endUnusedTemplates(now time.Time) {
	used := make(map[string][]*spec.Spec)
	for _, p := range s.List() {
		used[p.spec.Pool.Name] = append(used[p.spec.Pool.Name], p.spec)
	}
	s.endTemplates("template is not used any more", func(t *template) bool {
		inUse := func(sp *spec.Spec) bool { return reflect.DeepEqual(sp, t.spec) }
		if !sleep.Ended(t.ready) || slices.ContainsFunc(used[t.spec.Pool.Name], inUse) {
			t.usedAt = now
		}
		return now.Sub(t.usedAt) > templateLinger
	})
}

func (s *Supervisor) endTemplates(reason string, which func(*template) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.templates = slices.DeleteFunc(s.templates, func(t *template) bool {
		if !which(t) {
			return false
		}
		t.dropped = true
		if t.process != nil {
			t.process.Kill(reason)
		}
		return true
	})
}
