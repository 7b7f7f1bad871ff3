package process

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

const (
	// exitTimeoutAfterClose is the exitTime of a program.
	exitTimeoutAfterClose = time.Second
	// finalReadTimeout is how long the connection, and then the output, are read after the whole tree is gone. A process
	// that still holds them open is not of the tree, or the client of a stream does not read.
	finalReadTimeout = 2 * time.Second
	// stopReadTimeout is how long the connection of a process that was asked to stop, and has, is read while others of
	// its group may wait for the end of it.
	stopReadTimeout = 50 * time.Millisecond
	// killLimit is how long a process may take to exit after SIGKILL. One in an uninterruptible wait, such as for a file
	// server or a driver that hangs, is given up then; one that frees much memory takes seconds.
	killLimit = 30 * time.Second
)

// supervise runs from the fork until the tree is gone, whatever ends it. It returns the process with which the
// incarnation continues; nil if it has ended.
func (p *Process) supervise() (next *Process) {
	go func() {
		p.kind.wait()
		close(p.exited)
	}()
	p.signalUntilExit()
	if p.currentTermination().handedOver {
		p.releaseToKeeper()
		return nil
	}
	end := p.kind.end()
	// A process that has exited on its own, or ran out of memory, ends its incarnation.
	t := p.currentTermination()
	recycled := t.recycled && !t.ends() && end.signal == syscall.SIGKILL && !p.MemoryLimitExceeded()
	unbound := p.binding != nil && !p.isReady() && t.killReason == ""
	if (recycled || unbound) && !t.stopped && end.left.Complete() {
		var failed error
		if !recycled {
			// Without its output, which may be that of the key before.
			failed = coded(CodeStartFailed, nil, "%s has no process for the key: %s", p.key(),
				p.withLimitReason(classify(end, t)).Reason)
			p.logger.Warn("a process for a key was not started", "error", failed)
		}
		if next, end.failure = p.succeed(failed); next != nil {
			return next
		}
	}
	p.finish(end)
	return nil
}

// signalUntilExit sends the requested signals until the root process has exited, or cannot be killed.
func (p *Process) signalUntilExit() {
	var broken <-chan struct{}
	if p.conn != nil {
		broken = p.conn.Done()
	}
	exitDeadline := time.Time{} // after the connection closed; zero before
	for asked := false; ; {
		t := p.currentTermination()
		deadline := exitDeadline
		if t.stopped {
			deadline = t.deadline
		}
		late := !deadline.IsZero() && !time.Now().Before(deadline)
		switch {
		case t.handedOver:
			return
		case t.killed(), t.stopped && late:
			if !t.killed() {
				p.updateTermination(func(t *termination) { t.graceExpired = true })
			}
			p.kind.stop(true)
			for limit := time.After(p.supervisor.config.killLimit); !p.currentTermination().handedOver; {
				select {
				case <-p.exited:
					return
				case <-limit:
					return
				case <-p.wake:
				}
			}
			return
		case t.stopped && !asked:
			asked = true
			p.kind.stop(false)
		case late:
			p.fail(fmt.Sprintf("closed its connection but did not exit: %v", p.conn.Err()))
			continue
		}
		var expired <-chan time.Time
		if !deadline.IsZero() {
			expired = time.After(time.Until(deadline))
		}
		select {
		case <-p.exited:
			return
		case <-p.wake:
		case <-expired:
		case <-broken:
			broken = nil
			switch err := p.conn.Err(); {
			case errors.Is(err, wire.ErrHandedOver), p.currentTermination().recycled:
			case !t.stopped && errors.Is(err, wire.ErrUnanswered) && p.isReady():
				reason := fmt.Sprintf("did not end a cancelled call within %s (call.cancel_grace)", p.spec.Call.CancelGrace)
				p.updateTermination(func(t *termination) { t.cutCall = reason })
			case !t.stopped && !errors.Is(err, wire.ErrPeerClosed):
				p.fail(fmt.Sprintf("connection failed: %v", err))
			default: // a worker that exits closes its connection just before
				exitDeadline = time.Now().Add(p.exitTime())
			}
		}
	}
}

// exitTime is how long a process that closed its connection has to exit before it is killed. The engine of a container
// first removes it.
func (p *Process) exitTime() time.Duration {
	if p.spec.Pool.Kind == spec.KindContainer {
		return engineTimeout
	}
	return exitTimeoutAfterClose
}

// closeConn fails the calls in flight, once the reader has passed on what the process wrote, or limit is over.
func (p *Process) closeConn(limit time.Duration) {
	if p.conn == nil {
		return
	}
	sleep.For(p.conn.Done(), limit)
	_ = p.conn.Close()
}

// finish sets the Exit and notifies all waiters.
func (p *Process) finish(e ending) {
	exit := p.withLimitReason(classify(e, p.currentTermination()))
	p.logs.Note("ended: " + exit.Reason)
	p.logs.Close()
	if last := lastOutput(p.logs); last != "" && exit.Failed() {
		exit.Reason += "; last output:\n" + last
	}
	if e.left.Complete() {
		p.kind.release()
	} else {
		exit.Reason += "; " + e.left.String()
		p.logger.Error("cannot kill a process tree", "report", e.left.String())
	}
	p.logger.Info("worker process ended", "process", p.number, "pid", p.root.PID, "killed", exit.Killed,
		"interrupted", exit.Interrupted, "code", exit.Code, "signal", exit.Signal, "reason", exit.Reason)
	p.head.conclude(exit, false)
}

// releaseToKeeper ends the supervision of a process that was handed over and keeps running.
func (p *Process) releaseToKeeper() {
	tree.Disown(p.root.PID)
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.pipes.close()
	p.logs.Close()
	p.closeNamespaces()
	p.supervisor.ports.release(p.plan.address.port)
	p.logger.Info("worker process handed over", "pid", p.root.PID)
	p.head.conclude(Exit{Reason: "handed over to the next agent"}, true)
}
