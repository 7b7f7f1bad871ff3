package process

import (
	"fmt"
	"syscall"
	"time"

	"github.com/tempool/tempool/lifecycle"
)

// Exit is how an incarnation ended: the facts that decide its outcome, and what people want to read. Of the facts, Killed means that
// KILL was sent because the program did not stop within its grace, or because of Kill; Interrupted that it ended within its grace
// after TERM, or that its start was given up; and Error is what was wrong with the program so that it was ended: it broke the
// protocol, or did not become ready. At most one of these three is set.
type Exit struct {
	lifecycle.Exit
	// Reason is all of that as a sentence; for a failure with the last lines of output.
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// LogTail are the newest lines of output, at most 200.
	LogTail []string `json:"log_tail,omitempty"`
}

// Failed reports whether the program ended neither in order nor because it was told to.
func (e Exit) Failed() bool { return lifecycle.Outcome(e.Exit, false) == lifecycle.Failed }

// ending is what this side did to bring an incarnation to its end.
type ending struct {
	stopped   bool          // TERM was asked for
	grace     time.Time     // when TERM turns into KILL
	graceSpan time.Duration // the same, as it was asked for
	outlived  bool          // the grace passed
	kill      string        // why Kill was called
	fault     string        // what was wrong with the program
}

// classify tells the outcome from how the process ended and what was done to end it.
func classify(code int, signal syscall.Signal, e ending) Exit {
	var exit Exit
	exit.Code = code
	if signal != 0 {
		exit.Code, exit.Signal = 0, signalName(signal)
	}
	died := fmt.Sprintf("exited with code %d", exit.Code)
	if exit.Signal != "" {
		died = "was ended by " + exit.Signal
	}
	byKill := signal == syscall.SIGKILL
	switch {
	case e.kill != "" && byKill:
		exit.Killed, exit.Reason = true, "killed: "+e.kill
	case e.outlived && byKill:
		exit.Killed, exit.Reason = true, fmt.Sprintf("killed: it did not stop within %s of TERM", e.graceSpan)
	case e.fault != "" && byKill:
		exit.Error, exit.Reason = e.fault, e.fault
	case e.stopped:
		exit.Interrupted, exit.Reason = true, "stopped: it "+died+" after TERM"
	case e.fault != "":
		exit.Error, exit.Reason = e.fault, fmt.Sprintf("%s; it %s", e.fault, died)
	default:
		exit.Reason = died
	}
	return exit
}

// limitReached names the limit that the kernel has ended the program for, where it has.
func (p *Process) limitReached(e Exit) Exit {
	limits := p.Limits()
	switch {
	case e.Signal == "SIGXCPU" && limits.CPUTime > 0:
		e.Reason += fmt.Sprintf(": it has used up limits.cpu_time = %q", limits.CPUTime)
	case e.Signal == "SIGKILL" && !e.Killed && p.plan.cgroup.ranOutOfMemory():
		e.Reason += fmt.Sprintf(": the kernel ended its tree, which needed more than limits.memory = %q", limits.Memory)
	}
	return e
}

// withOutput adds the program's last words to the reason of a failure.
func (e Exit) withOutput(logs *logRing) Exit {
	if words := logs.lastWords(); words != "" && e.Failed() {
		e.Reason += "; last output:\n" + words
	}
	for _, line := range logs.all() {
		e.LogTail = append(e.LogTail, line.Text)
	}
	return e
}
