package process

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
)

const (
	// exitTimeoutAfterClose is how long a process that closed its connection has to exit before it is killed.
	exitTimeoutAfterClose = time.Second
	// finalReadTimeout is how long a connection may still deliver what a process wrote before it exited.
	finalReadTimeout = 50 * time.Millisecond
	// pipeDrainTimeout is how long pipes are read after the whole tree is gone. A process that still holds them open is not of the tree.
	pipeDrainTimeout = 500 * time.Millisecond
)

// supervise runs from the fork until the tree is gone, whatever ends it.
func (p *Process) supervise() {
	go func() {
		p.awaitExit()
		close(p.exited)
	}()
	p.signalUntilExit()
	if p.releaseToKeeper() {
		return
	}
	p.closeConn()
	p.awaitGroup()
	report := p.killTree()
	code, signal := p.reapRoot()
	p.finish(code, signal, report)
}

// signalUntilExit sends the requested signals until the root process has exited.
func (p *Process) signalUntilExit() {
	var broken <-chan struct{}
	if p.conn != nil {
		broken = p.conn.Done()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	exitDeadline := time.Time{} // after the connection closed
	for terminated, killed := false, false; ; {
		t := p.currentTermination()
		now := time.Now()
		switch {
		case t.handedOver:
			return
		case killed:
		case t.killed():
			killed = true
			p.signal(syscall.SIGKILL)
		case t.stopped && !now.Before(t.deadline):
			p.updateTermination(func(t *termination) { t.graceExpired = true })
			killed = true
			p.signal(syscall.SIGKILL)
		case t.stopped && !terminated:
			terminated = true
			p.signal(syscall.SIGTERM)
			p.signal(tree.SIGCONT) // a stopped process does not handle SIGTERM
			p.thawToStop()
		case !exitDeadline.IsZero() && !now.Before(exitDeadline) && !t.stopped:
			p.fail(fmt.Sprintf("closed its connection but did not exit: %v", p.conn.Err()))
		}
		wait := time.Hour
		if t.stopped && !killed {
			wait = time.Until(t.deadline)
		} else if !exitDeadline.IsZero() && !killed {
			wait = time.Until(exitDeadline)
		}
		timer.Reset(max(wait, 0))
		select {
		case <-p.exited:
			return
		case <-p.wake:
		case <-timer.C:
		case <-broken:
			broken = nil
			switch err := p.conn.Err(); {
			case errors.Is(err, wire.ErrHandedOver):
			case !t.stopped && errors.Is(err, wire.ErrUnanswered) && !p.Info().ReadyAt.IsZero():
				p.cutCall(fmt.Sprintf("did not give up a cancelled call within %s (call.cancel_grace)", p.spec.Call.CancelGrace))
			case !t.stopped && !errors.Is(err, wire.ErrPeerClosed):
				p.fail(fmt.Sprintf("connection failed: %v", err))
			default: // a worker that exits closes its connection just before
				exitDeadline = time.Now().Add(exitTimeoutAfterClose)
			}
		}
	}
}

// signal signals the process group, whose leader is unreaped.
func (p *Process) signal(sig syscall.Signal) {
	if !p.isChild() && !p.root.Exists() {
		return // its parent has reaped it, and its number may be another's
	}
	if err := tree.SignalGroup(p.root.PID, sig); err != nil {
		p.supervisor.logger.Error("cannot signal a process group", "worker", p.Worker(), "pid", p.root.PID, "signal", tree.SignalName(sig), "error", err)
	}
}

// closeConn fails the calls in flight even if a descendant holds the connection open.
func (p *Process) closeConn() {
	if p.conn == nil {
		return
	}
	select {
	case <-p.conn.Done():
	case <-time.After(finalReadTimeout):
	}
	_ = p.conn.Close()
}

// awaitGroup gives the rest of a group that got SIGTERM the rest of its grace: a parent may exit before its children.
func (p *Process) awaitGroup() {
	t := p.currentTermination()
	if !t.stopped || t.graceExpired || t.killed() {
		return
	}
	for delay := time.Millisecond; time.Now().Before(t.deadline); delay = min(2*delay, 50*time.Millisecond) {
		table, err := tree.ReadTable()
		if err != nil || !table.GroupAlive(p.root.PID) {
			return
		}
		select {
		case <-p.wake:
			if t = p.currentTermination(); t.killed() {
				return
			}
		case <-time.After(delay):
		}
	}
}

// killTree kills what is left of the tree. The root is unreaped, so its PID still identifies the group.
func (p *Process) killTree() tree.KillReport {
	p.signal(syscall.SIGKILL)
	key := p.treeKey()
	key.Unreaped = p.isChild()
	report := tree.Kill(key)
	for _, id := range p.members.List() {
		if id != p.root {
			tree.ReapOrphan(id)
		}
	}
	return report
}

// isChild reports whether nobody but this supervisor reaps the process.
func (p *Process) isChild() bool { return p.cmd != nil || p.child }

// reapRoot returns the exit code or the signal that ended the process; code -1 if nobody here knows.
func (p *Process) reapRoot() (code int, signal syscall.Signal) {
	if p.cmd == nil {
		status, err := syscall.WaitStatus(0), errors.ErrUnsupported
		if p.child {
			var waited unix.WaitStatus
			waited, err = tree.ReapChild(p.root.PID)
			status = syscall.WaitStatus(waited)
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
	if err := tree.WaitChild(p.cmd); err != nil && p.cmd.ProcessState == nil {
		p.supervisor.logger.Error("cannot wait for a process", "worker", p.Worker(), "pid", p.root.PID, "error", err)
	}
	return exitStatus(p.cmd.ProcessState)
}

// finish waits for the readers, sets the Exit and notifies everybody who waits.
func (p *Process) finish(code int, signal syscall.Signal, report tree.KillReport) {
	read := make(chan struct{})
	go func() {
		p.readers.Wait()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(pipeDrainTimeout):
	}
	p.pipes.close()
	<-read
	p.output.close()

	exit := p.withLimitReason(classify(code, signal, p.currentTermination()))
	p.logs.Note("ended: " + exit.Reason)
	p.logs.Close()
	exit = exit.withOutput(p.logs)
	exit.At = time.Now()
	if report.Complete() {
		p.cleanUp()
	} else {
		exit.Reason += "; " + report.String()
		p.supervisor.logger.Error("cannot kill a process tree", "worker", p.Worker(), "incarnation", p.Incarnation(), "report", report.String())
	}
	p.mu.Lock()
	p.exit = exit
	p.mu.Unlock()
	p.supervisor.recordExit(p)
	p.supervisor.logger.Info("worker process ended", "worker", p.Worker(), "incarnation", p.Incarnation(), "pid", p.root.PID,
		"killed", exit.Killed, "interrupted", exit.Interrupted, "code", exit.Code, "signal", exit.Signal, "reason", exit.Reason)
	p.notifyEnded()
}

// releaseToKeeper ends the supervision of a process that was handed over, which lives on. It reports false for any other.
func (p *Process) releaseToKeeper() bool {
	if !p.currentTermination().handedOver {
		return false
	}
	if p.cmd != nil {
		tree.Disown(p.cmd)
	}
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.pipes.close()
	p.output.close()
	p.logs.Close()
	p.probing.Lock()
	p.namespaces.Close()
	p.namespaces = nil
	p.probing.Unlock()
	p.mu.Lock()
	p.handedOver, p.exit = true, Exit{Reason: "handed over to the next agent", At: time.Now()}
	p.mu.Unlock()
	p.supervisor.ports.release(p.plan.address.port)
	p.supervisor.recordExit(p)
	p.supervisor.logger.Info("worker process handed over", "worker", p.Worker(), "incarnation", p.Incarnation(), "pid", p.root.PID)
	p.notifyEnded()
	return true
}
