package lifecycle

import (
	"fmt"
	"strconv"
)

// Exit is how a process ended.
type Exit struct {
	// Killed says that we sent KILL because the process outlived its grace.
	Killed bool `json:"killed,omitempty"`
	// CutCall says that the process was ended because it did not give up a cancelled call in time: its caller's doing, no
	// crash.
	CutCall bool `json:"cut_call,omitempty"`
	// ByAgent says that the agent killed the process for a reason of its own, such as a host that was lost, or a hand-over
	// that failed: no crash either.
	ByAgent bool `json:"by_agent,omitempty"`
	// Interrupted says that the process ended by our TERM or because its context was cancelled.
	Interrupted bool `json:"interrupted,omitempty"`
	// Code is the exit code; anything but 0 is an error.
	Code int `json:"code,omitempty"`
	// Signal names the signal that ended the process, empty if none did. It counts as an error unless it was ours, which
	// Killed or Interrupted then says.
	Signal string `json:"signal,omitempty"`
	// Error is what went wrong beyond code and signal, such as a host that was lost with the process on it.
	Error string `json:"error,omitempty"`
}

// Outcome is the state in which an incarnation ends. Intent decides, in this order: killed by us is Killed, unless the
// agent had a reason of its own; an interruption is Stopped; any error is Failed; a requested stop is Stopped;
// everything else is Finished. This separates a process that ignores TERM (Killed) from one that crashes (Failed).
func Outcome(exit Exit, stopRequested bool) State {
	switch {
	case exit.Killed && (stopRequested || !exit.ByAgent):
		return Killed
	case exit.Interrupted:
		return Stopped
	case exit.Code != 0 || exit.Signal != "" || exit.Error != "":
		return Failed
	case stopRequested:
		return Stopped
	default:
		return Finished
	}
}

// Metadata is the exit as data, for the record: code, signal, forced (by KILL after the grace) and error, as far as
// they are set.
func (x Exit) Metadata() map[string]string {
	data := map[string]string{"code": strconv.Itoa(x.Code)}
	if x.Signal != "" {
		data["signal"] = x.Signal
	}
	if x.Killed {
		data["forced"] = "true"
	}
	if x.Error != "" {
		data["error"] = x.Error
	}
	return data
}

// String is a sentence about the end of a process, for records and logs.
func (x Exit) String() string {
	switch {
	case x.CutCall:
		return "process killed: it did not end a cancelled call in time" + x.because()
	case x.ByAgent:
		return "process killed by its agent" + x.because()
	case x.Killed:
		return "process killed: it did not stop within its grace period" + x.because()
	case x.Interrupted:
		return "process interrupted" + x.because()
	case x.Signal != "":
		return fmt.Sprintf("process killed by signal %s, which Tempool did not send%s", x.Signal, x.because())
	case x.Code != 0:
		return fmt.Sprintf("process exited with code %d%s", x.Code, x.because())
	case x.Error != "":
		return "process ended" + x.because()
	default:
		return "process exited with code 0"
	}
}

func (x Exit) because() string {
	if x.Error == "" {
		return ""
	}
	return ": " + x.Error
}
