package process

import (
	"cmp"
	"fmt"
	"syscall"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// Exit is how an incarnation ended: the facts that decide its outcome, and text for people. Killed means that the
// supervisor sent SIGKILL because the program did not stop within its grace, or because of Kill, which ByAgent says;
// Interrupted that the program ended within its grace after SIGTERM, or that its start was cancelled; CutCall that it
// did not give up a cancelled call; Error is the program's fault for which the supervisor killed it: it broke the
// protocol or did not become ready. At most one of Killed, Interrupted and Error is set.
type Exit struct {
	lifecycle.Exit
	// Reason is all of that as a sentence; for a failure with the last lines of output.
	Reason string
}

// Outcome is how the incarnation ended, as far as this host knows.
func (e Exit) Outcome() lifecycle.State { return lifecycle.Outcome(e.Exit, false) }

// Failed reports whether the program ended with an error that no stop request explains.
func (e Exit) Failed() bool { return !e.ByAgent && e.Outcome() == lifecycle.Failed }

// classify derives the Exit from how the incarnation ended and what the supervisor did to end it.
func classify(e ending, t termination) Exit {
	var exit Exit
	exit.Code = e.code
	status, stopped, asked := fmt.Sprintf("exited with code %d", e.code), "stopped with SIGTERM", "SIGTERM"
	if e.code == -1 {
		status = "exited; its exit code is unknown, because an earlier agent had started it"
	}
	byKill := e.signal == syscall.SIGKILL
	switch {
	case e.inAgent:
		status, stopped, asked = e.status, "stopped", "the request to stop"
	case e.signal != 0:
		exit.Code, exit.Signal = 0, tree.SignalName(e.signal)
		status = "killed by " + exit.Signal
	}
	status = cmp.Or(e.failure, status)
	switch {
	case t.killReason != "" && byKill:
		exit.Killed, exit.ByAgent, exit.Reason = true, true, "killed: "+t.killReason
	case t.graceExpired && byKill:
		exit.Killed, exit.Reason = true, fmt.Sprintf("killed: did not stop within %s of %s", t.grace, asked)
	case t.failure != "" && byKill && e.failure == "":
		exit.Error, exit.Reason = t.failure, t.failure
	case t.cutCall != "" && !t.stopped:
		exit.Killed, exit.CutCall, exit.Reason = byKill, true, "killed: "+t.cutCall
	case t.stopped:
		exit.Interrupted, exit.Reason = true, stopped+": "+status
	case t.failure != "" && e.failure == "":
		exit.Error, exit.Reason = t.failure, t.failure+"; "+status
	default:
		exit.Error, exit.Reason = e.failure, status
	}
	if e.note != "" {
		exit.Reason += "; " + e.note
	}
	return exit
}

// withLimitReason adds the limit for which the kernel killed the program, if any.
func (p *Process) withLimitReason(e Exit) Exit {
	l := p.Limits()
	switch {
	case e.Signal == "SIGXCPU" && l.CPUTime > 0:
		e.Reason += fmt.Sprintf(": exceeded limits.cpu_time = %q", l.CPUTime)
	case e.Signal == "SIGKILL" && !e.Killed && p.plan.cgroup.OOMKilled():
		p.memoryExceeded.Store(true) // the cgroup is about to be removed
		e.Reason += fmt.Sprintf(": the kernel's OOM killer ended the process tree, which exceeded limits.memory = %q",
			l.Memory)
	}
	return e
}

// exitRecordSpec is the spec of all exit records: they have no connection.
var exitRecordSpec = spec.Spec{Pool: spec.Pool{Protocol: spec.ProtocolNone}}

// closedChan is shared by all exit records.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// exitRecord is what Get finds of an incarnation that has ended: its exit, its latest sample and what it has served. It
// keeps neither the connection with its buffers nor the output and the spec in memory.
func (p *Process) exitRecord() *Process {
	r := &Process{supervisor: p.supervisor, name: p.name, spec: &exitRecordSpec, plan: &plan{}, logs: &logs.Output{},
		served: p.served, exited: closedChan, done: closedChan}
	r.head = r
	r.inForce.Store(&limitsInForce{})
	r.meter.Restore(p.LatestSample())
	p.mu.Lock()
	defer p.mu.Unlock()
	r.handedOver, r.exit = p.handedOver, p.exit
	return r
}
