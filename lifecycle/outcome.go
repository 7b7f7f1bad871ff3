package lifecycle

import "fmt"

// Exit holds the facts of a process's end, as whoever reaped it saw them.
type Exit struct {
	// Killed says that we sent KILL because the process outlived its grace.
	Killed bool `json:"killed,omitempty"`
	// Interrupted says that the process ended by our TERM or because its context was cancelled.
	Interrupted bool `json:"interrupted,omitempty"`
	// Code is the exit code; anything but 0 is an error.
	Code int `json:"code,omitempty"`
	// Signal names the signal that ended the process, empty if none did. It counts as an error unless it was ours, which Killed
	// or Interrupted then says.
	Signal string `json:"signal,omitempty"`
	// Error is what went wrong beyond code and signal, such as a host that was lost with the process on it.
	Error string `json:"error,omitempty"`
}

// Outcome is the state in which an incarnation ends. Intent decides, in this order: killed by us is Killed; an interruption is
// Stopped; any error is Failed; a requested stop is Stopped; what is left ended cleanly by itself and is Finished. So an
// obstinate process (Killed) and a buggy one (Failed) are told apart.
func Outcome(exit Exit, stopRequested bool) State {
	switch {
	case exit.Killed:
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

// String is a sentence about the end of a process, for records and logs.
func (x Exit) String() string {
	switch {
	case x.Killed:
		return "the process did not stop within its grace and was killed" + x.because()
	case x.Interrupted:
		return "the process ended because it was interrupted" + x.because()
	case x.Signal != "":
		return fmt.Sprintf("the process was ended by signal %s, which was not ours%s", x.Signal, x.because())
	case x.Code != 0:
		return fmt.Sprintf("the process exited with code %d%s", x.Code, x.because())
	case x.Error != "":
		return "the process ended" + x.because()
	default:
		return "the process exited with code 0"
	}
}

func (x Exit) because() string {
	if x.Error == "" {
		return ""
	}
	return ": " + x.Error
}
