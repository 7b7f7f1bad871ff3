package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// program is the kind "process": a program of this host, started as a child of the agent.
type program struct{ *Process }

// start records the process, starts the program with its pipes, and starts the goroutines that read them. The record
// and the reaper come first: before the program runs, somebody else must know the mark and the cookie. Until a fork of
// a template is adopted it belongs to the template, of which they know.
func (p program) start(ctx context.Context) error {
	alone := p.template == nil
	var err error
	if alone {
		err = p.register()
	}
	if err == nil {
		err = p.fork(ctx)
	}
	if err != nil {
		p.release()
		return err
	}
	if alone {
		if err := p.register(); err != nil {
			p.logger.Warn("cannot record the PID of a process", "error", err)
		}
	}
	return nil
}

// register records the process in the state directory and tells the reaper of it, with what is known of its tree.
func (p *Process) register() error {
	if err := p.supervisor.state.writeRecord(p.record()); err != nil {
		return err
	}
	p.supervisor.reaper.Watch(p.treeKey())
	return nil
}

// fork starts the program with its pipes, alone or as a fork of its template, and the goroutines that read them.
func (p program) fork(ctx context.Context) error {
	var childEnds []*os.File
	defer func() {
		for _, end := range childEnds {
			end.Close()
		}
	}()
	cmd := p.plan.command(p.plan.program, p.plan.args, p.plan.dir)
	err := p.pipes.open(p.spec.Pool.Protocol, cmd, &childEnds)
	var gate *os.File
	switch {
	case err != nil:
	case p.template != nil:
		gate, err = p.template.fork(ctx, p.Process, cmd)
	default:
		var openFiles uint64
		p.namespaces, openFiles, err = p.plan.launch(cmd, nil, p.spec.Start.Timeout.D())
		if openFiles > 0 {
			p.logger.Warn("this host allows fewer open files than limits.open_files", "wanted", p.plan.limits.OpenFiles,
				"in_force", openFiles)
		}
	}
	if err != nil {
		p.pipes.close()
		return err
	}
	p.startedAt = time.Now()
	var launcherCPU time.Duration // not the program's
	if gate == nil {
		p.root, p.child = tree.Identity{PID: cmd.Process.Pid}, true
		if found, err := tree.ReadEntry(p.root.PID); err == nil && found != nil {
			p.root, launcherCPU = found.Identity, found.CPU
		}
		_ = cmd.Process.Release() // tree.ReapChild reaps it, like the fork of a template
	}
	p.meter.Start(p.startedAt, launcherCPU)
	p.awaitExit = tree.WatchExit(p.root)
	p.logs.Note(fmt.Sprintf("started as PID %d", p.root.PID))
	p.readLogs()
	p.conn, p.connErr = p.connect(nil)
	if gate != nil {
		_, _ = gate.Write([]byte{1}) // it fails if the process has ended, which others notice
		gate.Close()
	}
	return nil
}

// record returns the process's record for the state directory.
func (p *Process) record() record {
	return record{
		Worker: p.name.worker, Incarnation: p.name.incarnation, Key: p.treeKey(),
		Space: tree.NumberSpace(), StartedAt: p.startedAt, SocketDir: p.plan.address.dir,
	}
}

// release removes all traces of the process outside it. The tree must be gone.
func (p program) release() {
	s := p.supervisor
	p.plan.mark.Retire()
	s.killEscaped()
	s.reaper.Forget(p.plan.cookie)
	if err := s.state.removeRecord(p.name.worker, p.name.incarnation); err != nil {
		p.logger.Warn("cannot remove the record of an ended process", "error", err)
	}
	p.plan.cgroup.Remove(s.logger)
	p.closeNamespaces()
	s.releaseAddress(p.plan.address)
}

// closeNamespaces waits for an exec probe that enters them.
func (p *Process) closeNamespaces() {
	p.probing.Lock()
	defer p.probing.Unlock()
	p.namespaces.Close()
	p.namespaces = nil
}

// hasTree reports whether the incarnation has processes of its own.
func (p *Process) hasTree() bool { return p.root.PID != 0 }

// treeKey identifies the process tree. While the process has not exited, nobody has reaped it.
func (p *Process) treeKey() tree.Key {
	key := tree.Key{Root: p.root, Cookie: p.plan.cookie, Mark: p.plan.mark, Known: p.members,
		OfEngine: p.spec.Pool.Kind == spec.KindContainer}
	if p.plan.cgroup != nil {
		key.Cgroup = p.plan.cgroup.Dir
	}
	key.Unreaped = !sleep.Ended(p.exited)
	return key
}

// signal signals the process group, whose leader is unreaped.
func (p program) signal(sig syscall.Signal) {
	if !p.child && !p.root.Exists() {
		return // its parent has reaped it, and its number may be another's
	}
	if err := tree.SignalGroup(p.root.PID, sig); err != nil {
		p.logger.Error("cannot signal a process group", "pid", p.root.PID, "signal", tree.SignalName(sig), "error", err)
	}
}

// awaitGroup gives the rest of a group that got SIGTERM the rest of its grace: a parent may exit before its children.
func (p program) awaitGroup() {
	for delay := time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		t := p.currentTermination()
		if !t.stopped || t.graceExpired || t.killed() || !time.Now().Before(t.deadline) {
			return
		}
		table, err := tree.ReadTable()
		if err != nil || !table.GroupAlive(p.root.PID) {
			return
		}
		p.closeConn(stopReadTimeout)
		select {
		case <-p.wake:
		case <-time.After(delay):
		}
	}
}

// wait waits for the exit of the root process, and does not reap it.
func (p program) wait() { p.awaitExit() }

// stop signals the process group.
func (p program) stop(force bool) {
	if force {
		p.signal(syscall.SIGKILL)
		return
	}
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT) // a stopped process does not handle SIGTERM
	p.thawToStop()
}

// end kills the rest of the tree, and reads the rest of its output.
func (p program) end() ending {
	p.awaitGroup()
	left := p.killTree()
	code, signal := p.reapRoot()
	p.closeConn(finalReadTimeout)
	p.drainPipes()
	return ending{code: code, signal: signal, left: left}
}

// drainPipes waits for the readers, but not for long: a process that still holds a pipe does not belong to the tree.
func (p program) drainPipes() {
	read := sleep.Done(p.readers.Wait)
	sleep.For(read, finalReadTimeout)
	p.pipes.close()
	<-read
}

// probe connects to the program, or runs a command beside it.
func (p program) probe(ctx context.Context) error {
	switch health := p.spec.Health; health.Kind {
	case spec.HealthHTTP:
		return p.probeHTTP(ctx, health.Path)
	case spec.HealthTCP:
		return p.probeTCP(ctx)
	case spec.HealthExec:
		return p.probeExec(ctx, health.Command)
	default:
		return coded(CodeInvalid, nil, "unknown health.kind %q", health.Kind)
	}
}

// killTree kills what is left of the tree. The root is unreaped, so its PID still identifies the group.
func (p program) killTree() tree.KillReport {
	p.signal(syscall.SIGKILL)
	key := p.treeKey()
	key.Unreaped = p.child
	return tree.Kill(key)
}

// reapRoot returns the exit code or the signal that ended the process; code -1 if nobody here knows.
func (p program) reapRoot() (code int, signal syscall.Signal) {
	if !sleep.Ended(p.exited) { // it could not be killed
		go func() {
			<-p.exited
			p.reapRoot()
		}()
		return 0, syscall.SIGKILL
	}
	var status unix.WaitStatus
	err := errors.ErrUnsupported
	if p.child {
		status, err = tree.ReapChild(p.root.PID)
	}
	t := p.currentTermination()
	switch {
	case err == nil && status.Signaled():
		return 0, status.Signal()
	case err == nil:
		return status.ExitStatus(), 0
	case t.killed() || t.graceExpired:
		return 0, syscall.SIGKILL
	}
	return -1, 0
}
