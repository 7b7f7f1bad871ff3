package activities

import (
	"time"

	"github.com/tempool/tempool/api"
)

// Observer is told what the activities see of the workers of a host, for metrics. Its methods return at once and are safe for
// concurrent use.
type Observer interface {
	// Started is told of a process that became ready, and how long that took; StartFailed of a start that came to nothing.
	Started(p api.Process, took time.Duration)
	StartFailed(p api.Process)
	// Watching is told what a workflow wants watched: as what it takes the process.
	Watching(r api.WatchRequest)
	// Probed is told how a health check went; nil is well.
	Probed(p api.Process, err error)
	// Stopping is told that a process is asked to exit.
	Stopping(p api.Process)
	// Decided is told what this host decided about a worker by itself.
	Decided(worker string, d Decision)
}

// Decision is what a host decides by itself, in one word: the label under which decisions are counted.
type Decision string

// The decisions.
const (
	TryAgain       Decision = "try_again"       // a start failed, and Temporal is asked for a further try after a wait
	ResetWorker    Decision = "reset"           // a lease expired, and the worker is asked to forget what that left behind
	ApplyShare     Decision = "apply_share"     // its share of the host's budget became its limits
	CollectGarbage Decision = "collect_garbage" // the host is short of memory
	LowerLimit     Decision = "lower_limit"     // the host is very short of memory
	RestoreLimit   Decision = "restore_limit"   // it is not any more
)

// Decisions lists them.
func Decisions() []Decision {
	return []Decision{TryAgain, ResetWorker, ApplyShare, CollectGarbage, LowerLimit, RestoreLimit}
}

// noObserver is the Observer of a Host that has none.
type noObserver struct{}

func (noObserver) Started(api.Process, time.Duration) {}
func (noObserver) StartFailed(api.Process)            {}
func (noObserver) Watching(api.WatchRequest)          {}
func (noObserver) Probed(api.Process, error)          {}
func (noObserver) Stopping(api.Process)               {}
func (noObserver) Decided(string, Decision)           {}

func (h *Host) observer() Observer {
	if h.Observer == nil {
		return noObserver{}
	}
	return h.Observer
}
