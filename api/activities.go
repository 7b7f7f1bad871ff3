package api

import (
	"time"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// The messages between the worker workflow and the activities on its host.

// Process names one incarnation where it runs.
type Process struct {
	Worker      string `json:"worker"`
	Incarnation int64  `json:"incarnation"`
}

// AwaitCapacityResult names a host that had room when it was asked.
type AwaitCapacityResult struct {
	Host string `json:"host"`
}

// StartRequest starts an incarnation on whichever host takes it. It is idempotent by worker and incarnation.
type StartRequest struct {
	Process
	Spec spec.Spec `json:"spec"`
	// Keep lists older incarnations that live on beside this one; every other one that is still on the host is killed first.
	KeepIncarnations []int64 `json:"keep_incarnations,omitempty"`
	// Tries is how many tries the start may make, each under the next incarnation and after the wait that the recovery policy asks for;
	// 0 is one. Failures counts those in a row that came before the first, of which the newest was Brief if it followed soon on a start.
	MaxAttempts int  `json:"max_attempts,omitempty"`
	Failures    int  `json:"failures,omitempty"`
	ShortLived  bool `json:"short_lived,omitempty"`
}

// FailedAttempt is a try of a start that came to nothing.
type FailedAttempt struct {
	Incarnation int64     `json:"incarnation"`
	Began       time.Time `json:"began"`
	Ended       time.Time `json:"ended"`
	Reason      string    `json:"reason"`
	// Wait and Next are what the recovery policy said of the next try; empty where the worker is to decide.
	Wait spec.Duration `json:"wait,omitempty"`
	Next string        `json:"next,omitempty"`
}

// FailedAttempts is the detail of a start that failed, and of its heartbeats: all tries so far that failed, oldest first.
type FailedAttempts struct {
	Attempts []FailedAttempt `json:"attempts,omitempty"`
}

// StartResult is a process that has passed its handshake and warm-up.
type StartResult struct {
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	Endpoint  string    `json:"endpoint"`
	Address   string    `json:"address,omitempty"`
	Sample    *Sample   `json:"sample,omitempty"`
	// TookMS is the time from spawn to ready, in milliseconds.
	TookMS int64 `json:"took_ms"`
	// Incarnation is the one that became ready, and Failed the tries before it.
	Incarnation int64           `json:"incarnation,omitempty"`
	Failed      []FailedAttempt `json:"failed,omitempty"`
	// Limits says by which means each limit that is set is in force, by its key in the section limits: cgroup, rlimit, scheduler,
	// kernel, gateway, sampler (the agent looks every second), or none where this host cannot hold it.
	Limits map[string]string `json:"limits,omitempty"`
}

// SupersededDetails is the detail of a Start that failed as superseded: the highest incarnation the host has seen of the worker.
type SupersededDetails struct {
	Newest int64 `json:"newest"`
	FailedAttempts
}

// WatchRequest observes an incarnation until something happens. With Failures > 0 the first probe comes after
// DegradedProbeDelay and its outcome is returned either way.
type WatchRequest struct {
	Process
	Health   spec.Health `json:"health"`
	Failures int         `json:"failures,omitempty"`
	Probe    bool        `json:"probe"` // false while suspended: only the end of the process is watched
	Rules    WatchRules  `json:"rules,omitzero"`
	// Replaced is for the metrics of the host.
	Replaced Replaced `json:"replaced,omitzero"`
}

// Replaced counts, by Cause, the incarnations of a worker that went: in good order, and otherwise.
type Replaced struct {
	Rotations map[string]int64 `json:"rotations,omitempty"`
	Restarts  map[string]int64 `json:"restarts,omitempty"`
}

// WatchRules are what a Watch holds samples and counts against; the zero value finds nothing. A Watch that finds that an incarnation
// should go returns WatchReplace, and is started again without rules while the worker waits for its turn.
type WatchRules struct {
	// RequestLimit is after how many requests the incarnation has done its share, jitter included; 0 is never.
	RequestLimit int64 `json:"request_limit,omitempty"`
	// MaxMemoryBytes of the whole tree end it; 0 is never.
	MaxMemoryBytes int64 `json:"max_memory_bytes,omitempty"`
	// Grade says that a low grade ends it, once it has lived for GradeAfter.
	Grade      bool          `json:"grade,omitempty"`
	GradeAfter spec.Duration `json:"grade_after,omitempty"`
	// Window and Horizon are prediction's; a Window of 0 predicts nothing. MemoryLimitBytes is what memory must not reach; 0 is none.
	Window           int           `json:"window,omitempty"`
	Horizon          spec.Duration `json:"horizon,omitempty"`
	MemoryLimitBytes int64         `json:"memory_limit_bytes,omitempty"`
	// Limits says that going over one of the spec's limits ends it, where only the host's sampler holds that.
	Limits bool `json:"limits,omitempty"`
}

// Assessment is how well an incarnation is, from its newest sample.
type Assessment struct {
	Grade    string   `json:"grade"`
	Score    float64  `json:"score"` // 0 to 100
	Warnings []string `json:"warnings,omitempty"`
}

// DegradedProbeDelay is how long after a failed probe the next one comes.
const DegradedProbeDelay = 5 * time.Second

// WatchEvent is why a Watch returned.
type WatchEvent string

// Reasons for a Watch to return.
const (
	WatchExited      WatchEvent = "exited"
	WatchProbeFailed WatchEvent = "probe_failed"
	WatchProbePassed WatchEvent = "probe_passed"
	WatchShutdown    WatchEvent = "agent_shutdown"
	WatchUnknown     WatchEvent = "unknown_process" // the host does not know the incarnation: its agent was restarted
	WatchReplace     WatchEvent = "finding"         // the incarnation should be replaced, for Cause
)

// WatchResult is what Watch saw. Exit is set for exited and unknown_process.
type WatchResult struct {
	Event  WatchEvent      `json:"event"`
	Reason string          `json:"reason,omitempty"`
	Exit   *lifecycle.Exit `json:"exit,omitempty"`
	Sample *Sample         `json:"sample,omitempty"`
	// Cause is set for finding.
	Cause      Cause       `json:"cause,omitempty"`
	Assessment *Assessment `json:"assessment,omitempty"`
	// Usage counts all calls of the incarnation, as its host saw them; set for exited.
	Usage *Usage `json:"usage,omitempty"`
}

// WatchHeartbeat is the detail of every heartbeat of Watch: the live sample, for whoever describes the workflow.
type WatchHeartbeat struct {
	Sample *Sample `json:"sample,omitempty"`
	// Usage counts the calls of this incarnation so far, as the host saw them.
	Usage      Usage       `json:"usage"`
	InFlight   int         `json:"in_flight"`
	Assessment *Assessment `json:"assessment,omitempty"`
	// Limits is by which means each limit is in force now; MemoryLimitBytes and CPULimitCores are two of them, whoever set them, 0 for none.
	Limits           map[string]string `json:"limits,omitempty"`
	MemoryLimitBytes int64             `json:"memory_limit_bytes,omitempty"`
	CPULimitCores    float64           `json:"cpu_limit_cores,omitempty"`
}

// ProbeResult is one health check and one full sample.
type ProbeResult struct {
	Healthy bool    `json:"healthy"`
	Gone    bool    `json:"gone,omitempty"` // the host does not know the process, or it has ended
	Reason  string  `json:"reason,omitempty"`
	Sample  *Sample `json:"sample,omitempty"`
	// Assessment is how well it is, as far as it is graded.
	Assessment *Assessment `json:"assessment,omitempty"`
	// Usage counts all calls of the incarnation; set with Gone for one that the host knows.
	Usage *Usage `json:"usage,omitempty"`
}

// DrainRequest waits until no call is in flight, at most Timeout.
type DrainRequest struct {
	Process
	Timeout spec.Duration `json:"timeout"`
}

// DrainResult tells how a drain ended; Cut counts the calls still in flight when its time was up.
type DrainResult struct {
	Drained bool `json:"drained"`
	Cut     int  `json:"cut,omitempty"`
	// Checkin is the checkin the gateway would have made of a lease that it holds itself.
	Checkin *CheckinRequest `json:"checkin,omitempty"`
}

// RecallRequest asks the gateway of a host to give an idle lease back.
type RecallRequest struct {
	Process
	LeaseID string `json:"lease_id"`
}

// RecallResult says whether the gateway let go. Returned carries the checkin it would have made.
type RecallResult struct {
	Returned bool            `json:"returned"`
	Checkin  *CheckinRequest `json:"checkin,omitempty"`
}

// ResetRequest has a worker forget what the holder of an expired lease left behind, within Timeout. No call under that lease goes on.
type ResetRequest struct {
	Process
	LeaseID string        `json:"lease_id"`
	Timeout spec.Duration `json:"timeout"`
}

// ResetResult says how that went: the worker is as new, or Problem says why it is not.
type ResetResult struct {
	Problem string `json:"problem,omitempty"`
	// Usage is what was called under the lease, as its host saw it.
	Usage Usage `json:"usage"`
}

// StopRequest ends a process: TERM, then KILL of the whole tree after Grace. A process the host does
// not know counts as ended: its agent was restarted, and the reaper has taken its tree.
type StopRequest struct {
	Process
	Grace  spec.Duration `json:"grace"`
	Reason string        `json:"reason,omitempty"`
}

// StopResult is how the process ended.
type StopResult struct {
	Exit   lifecycle.Exit `json:"exit"`
	Reason string         `json:"reason,omitempty"`
	// Usage counts all calls of the incarnation, as its host saw them; nil for one that the host does not know.
	Usage *Usage `json:"usage,omitempty"`
}

// Sample is what a whole process tree used at one moment.
type Sample struct {
	At         time.Time `json:"at"`
	RSSBytes   int64     `json:"rss_bytes"`
	PSSBytes   int64     `json:"pss_bytes,omitempty"` // 0 where it cannot be read
	CPUPercent float64   `json:"cpu_percent"`         // over the time since the sample before; 100 is one core
	OpenFiles  int       `json:"open_files"`
	Threads    int       `json:"threads"`
	Children   int       `json:"children"`
	ReadBytes  int64     `json:"read_bytes"`
	WriteBytes int64     `json:"write_bytes"`
}

// WorkerChanged is how a worker tells its pool of a change in its life.
type WorkerChanged struct {
	RosterEntry
}
