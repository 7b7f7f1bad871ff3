package activities

import (
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/limits"
)

// Observer receives what the activities see of the workers of a host, for metrics. Its methods return at once and are
// safe for concurrent use.
type Observer interface {
	// Started reports a process that became ready, and how long that took.
	Started(p api.Process, took time.Duration)
	// StartFailed reports a start that failed, and why.
	StartFailed(p api.Process, err error)
	// Watching reports the request of a Watch, which holds the workflow's view of the process.
	Watching(r api.WatchRequest)
	// Probed reports the result of a health check, and how long it took; nil means healthy. A report of the program itself
	// took 0.
	Probed(p api.Process, took time.Duration, err error)
	// Sampled reports a new sample of a process, and how many requests the process has served.
	Sampled(p api.Process, s *api.Sample, requests int64)
	// Exceeded reports that a process exceeded a limit for which it should be replaced.
	Exceeded(p api.Process, v limits.Violation)
	// Stopping reports that a process is about to be stopped.
	Stopping(p api.Process)
	// Decided reports a decision that this host made about a worker without its workflow.
	Decided(worker string, d Decision)
}

// Decision is a decision that a host makes without a workflow. It is the value of a metric's label.
type Decision string

// The decisions.
const (
	TryAgain       Decision = "try_again"       // a start failed; Temporal retries it after a delay
	ResetWorker    Decision = "reset"           // a lease expired; the worker discards what its holder left
	ApplyShare     Decision = "apply_share"     // the worker's share of the host's budget became its limits
	CollectGarbage Decision = "collect_garbage" // memory pressure is medium or higher
	LowerLimit     Decision = "lower_limit"     // memory pressure is high or critical
	RestoreLimit   Decision = "restore_limit"   // memory pressure is below high again
)

// Decisions returns all decisions.
func Decisions() []Decision {
	return []Decision{TryAgain, ResetWorker, ApplyShare, CollectGarbage, LowerLimit, RestoreLimit}
}
