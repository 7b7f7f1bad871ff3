package process

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

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
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// LogTail are the newest lines of output, at most 200.
	LogTail []string `json:"log_tail,omitempty"`
}

// Outcome is how the incarnation ended, as far as this host knows.
func (e Exit) Outcome() lifecycle.State { return lifecycle.Outcome(e.Exit, false) }

// Failed reports whether the program ended with an error that no stop request explains.
func (e Exit) Failed() bool { return !e.ByAgent && e.Outcome() == lifecycle.Failed }

// exitStatus returns the exit code or the signal that ended a process; code -1 if the process could not be waited for.
func exitStatus(state *os.ProcessState) (int, syscall.Signal) {
	if state == nil {
		return -1, 0
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 0, status.Signal()
	}
	return state.ExitCode(), 0
}

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

// withOutput adds the log tail, and the last output to the reason of a failure.
func (e Exit) withOutput(output *logs.Output) Exit {
	if last := lastOutput(output); last != "" && e.Failed() {
		e.Reason += "; last output:\n" + last
	}
	for _, line := range output.Lines() {
		e.LogTail = append(e.LogTail, line.Text)
	}
	return e
}

// exitRecordSpec is the spec of all exit records: they have no connection.
var exitRecordSpec = spec.Spec{Pool: spec.Pool{Protocol: spec.ProtocolNone}}

// The channels that all exit records share.
var (
	closedChan = func() chan struct{} {
		c := make(chan struct{})
		close(c)
		return c
	}()
	neverClosed = make(chan struct{})
)

// exitRecord returns a small copy of a process that has ended: its exit, its last log lines, its latest sample and its
// limits. The copy does not keep the connection with its buffers, the environment or the spec in memory.
func (p *Process) exitRecord() *Process {
	p, head := p.now(), p
	r := &Process{
		number:     p.number,
		supervisor: p.supervisor, name: p.name, spec: &exitRecordSpec, plan: &plan{cookie: p.plan.cookie},
		logs: tailOf(p.logs), members: &tree.MemberSet{}, finalCounts: p.Counts(),
		root: p.root, startedAt: p.startedAt, exited: closedChan, done: closedChan, exceeded: closedChan,
	}
	r.kind = program{r}
	r.meter.Restore(head.LatestSample())
	r.memoryExceeded.Store(p.memoryExceeded.Load())
	r.head = r
	head.mu.Lock()
	r.address, r.readyAt, r.exit = head.address, head.readyAt, head.exit
	head.mu.Unlock()
	r.termination = p.currentTermination()
	r.exit.LogTail = slices.Clone(r.exit.LogTail[len(r.exit.LogTail)-min(len(r.exit.LogTail), reasonLines):])
	for i, line := range r.exit.LogTail {
		r.exit.LogTail[i] = strings.Clone(truncate(line, reasonBytes/reasonLines))
	}
	p.limitsMu.Lock()
	r.limits, r.mechanisms, r.violation = p.limits, p.mechanisms, p.violation
	p.limitsMu.Unlock()
	if r.violation == nil {
		r.exceeded = neverClosed
	}
	return r
}
