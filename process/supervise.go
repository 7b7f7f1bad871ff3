package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

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
	p.closeConn()
	p.awaitGroup()
	report := p.killTree()
	state := p.reapRoot()
	p.finish(state, report)
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
	key.Unreaped = true
	report := tree.Kill(key)
	for _, id := range p.members.List() {
		if id != p.root {
			tree.ReapOrphan(id)
		}
	}
	return report
}

func (p *Process) reapRoot() *os.ProcessState {
	if err := tree.WaitChild(p.cmd); err != nil && p.cmd.ProcessState == nil {
		p.supervisor.logger.Error("cannot wait for a process", "worker", p.Worker(), "pid", p.root.PID, "error", err)
	}
	return p.cmd.ProcessState
}

// finish waits for the readers, sets the Exit and notifies everybody who waits.
func (p *Process) finish(state *os.ProcessState, report tree.KillReport) {
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

	code, signal := exitStatus(state)
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
