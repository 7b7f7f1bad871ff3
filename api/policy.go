package api

import (
	"time"

	"github.com/tempool/tempool/spec"
)

// The messages by which policies are carried out: between a worker and its pool, and from the agents to a pool.

// Cause is why an incarnation is replaced, in one word: the label under which rotations and restarts are counted.
type Cause string

// Causes of rotations: a healthy incarnation makes way in good order, at most rotation.max_unavailable of a pool at one time.
const (
	CauseRequests   Cause = "requests"   // rotation.max_requests
	CauseMemory     Cause = "memory"     // rotation.max_memory
	CauseUptime     Cause = "uptime"     // rotation.max_uptime
	CauseGrade      Cause = "grade"      // its health grade was too low for too long
	CausePrediction Cause = "prediction" // a trend of memory or score leads to failure
	CauseOperator   Cause = "operator"   // somebody asked for a restart
	CauseSpec       Cause = "spec"       // a new spec is rolled out
	CauseFiles      Cause = "files"      // watched files have changed
	CausePressure   Cause = "pressure"   // the host is short of memory
	CauseLimits     Cause = "limits"     // it is over one of limits, which only its host's sampler holds
)

// Causes of restarts that nobody planned.
const (
	CauseExit        Cause = "exit"         // the process ended by itself
	CauseStartFailed Cause = "start_failed" // it did not become ready
	CauseUnhealthy   Cause = "unhealthy"    // probes or leases failed health.max_failures times in a row
	CauseLease       Cause = "lease"        // a lease expired, or its holder asked for a new process
	CauseHostLost    Cause = "host_lost"    // the host was lost, or its agent was restarted or shut down
	CauseSuperseded  Cause = "superseded"   // the host had seen a higher number of an earlier pool of the same name
)

// RotationRequest is how a worker asks its pool for leave to replace an incarnation that still serves. The same request may come
// again; the pool answers with RotationGrant.
type RotationRequest struct {
	Slot        int    `json:"slot"`
	Incarnation int64  `json:"incarnation"` // the one that is to go
	Cause       Cause  `json:"cause"`
	Reason      string `json:"reason"`
}

// RotationGrant lets a worker replace the incarnation it asked for; for another one it means nothing.
type RotationGrant struct {
	Incarnation int64 `json:"incarnation"`
}

// RotationDone ends a worker's turn. Failed means that the incarnation serves on: the next process could not be started.
type RotationDone struct {
	Slot        int    `json:"slot"`
	Incarnation int64  `json:"incarnation"` // the one that was to go
	Failed      bool   `json:"failed,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

// FilesChanged tells a pool that files it watches (watch.paths) have changed on a host and are quiet again (watch.debounce). The
// pool restarts its workers as watch.mode says, with the first file in the reason.
type FilesChanged struct {
	Pool  string   `json:"pool"`
	Host  string   `json:"host"`
	Files []string `json:"files"` // absolute, at most some dozen; More counts the rest
	More  int      `json:"more,omitempty"`
}

// MemoryPressure tells a pool how short of memory a host of its workers is. An agent sends it when the level changes, and again in
// a rhythm of its own while the level is high or critical. A level that falls has been calm for a minute before it is sent.
type MemoryPressure struct {
	Host           string         `json:"host"`
	Level          string         `json:"level"` // none, medium, high or critical: policy.Level
	AvailableBytes int64          `json:"available_bytes"`
	TotalBytes     int64          `json:"total_bytes"`
	Reason         string         `json:"reason,omitempty"` // the sentence of policy.Pressure
	Workers        []WorkerMemory `json:"workers"`          // the pool's own on that host
	At             time.Time      `json:"at"`
}

// WorkerMemory is what the process tree of one worker uses.
type WorkerMemory struct {
	Slot        int   `json:"slot"`
	Incarnation int64 `json:"incarnation"`
	RSSBytes    int64 `json:"rss_bytes"`
}

// StartRequested is how a worker whose pool holds its starts (start.rate_per_second, or an open breaker) asks to be let go.
type StartRequested struct {
	Slot        int   `json:"slot"`
	Incarnation int64 `json:"incarnation"`
}

// StartsHeld tells workers that they have to ask before each start, and why; an empty Reason lets them start as they like.
type StartsHeld struct {
	Reason string `json:"reason,omitempty"`
}

// StartReleased lets one start of a worker go.
type StartReleased struct {
	Incarnation int64  `json:"incarnation"`
	Reason      string `json:"reason,omitempty"`
	// Pause, if positive, makes the worker try for all the others: it goes on by itself until it serves or gives up, with at least this
	// time between two tries.
	Pause spec.Duration `json:"pause,omitempty"`
}

// ApplyLimitsRequest gives a running process new limits; what is 0 stays as it is.
type ApplyLimitsRequest struct {
	Process
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	CPUCores    float64 `json:"cpu_cores,omitempty"`
	Reason      string  `json:"reason,omitempty"`
}

// ApplyLimitsResult says by which means each limit is in force now, see StartResult.
type ApplyLimitsResult struct {
	Limits map[string]string `json:"limits,omitempty"`
}

// LimitsApplied is what a running process was given, beside the limits of its spec: a share of its host's budget. Limits is by which means
// each limit of it is in force, see StartResult.
type LimitsApplied struct {
	Incarnation int64             `json:"incarnation"`
	MemoryBytes int64             `json:"memory_bytes,omitempty"`
	CPUCores    float64           `json:"cpu_cores,omitempty"`
	Limits      map[string]string `json:"limits,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	At          time.Time         `json:"at,omitzero"`
}

// CollectGarbageRequest has a worker that speaks frames give back what memory it can, within Timeout (0: as long as the activity has).
type CollectGarbageRequest struct {
	Process
	Timeout spec.Duration `json:"timeout,omitempty"`
}

// CollectGarbageResult is what the process tree used before, by its newest sample, and after; 0 is unknown.
type CollectGarbageResult struct {
	BeforeBytes int64 `json:"before_bytes,omitempty"`
	AfterBytes  int64 `json:"after_bytes,omitempty"`
}

// RebalanceRequest has a host share its budget among workers of a pool.
type RebalanceRequest struct {
	Pool      string         `json:"pool"`
	Resources spec.Resources `json:"resources"`
	Limits    spec.Limits    `json:"limits"` // no share is above them
	Processes []Process      `json:"processes"`
	// Apply has the shares applied as limits; without it they are only worked out (policy.mode = "observe").
	Apply bool `json:"apply"`
}

// RebalanceResult is how a budget was shared out. Problem says why it was not; nothing has changed then.
type RebalanceResult struct {
	Shares  []Share `json:"shares,omitempty"`
	Problem string  `json:"problem,omitempty"`
}

// Share is what one worker may use of its host's budget.
type Share struct {
	Process
	MemoryBytes int64   `json:"memory_bytes"`
	CPUCores    float64 `json:"cpu_cores"`
	Applied     bool    `json:"applied,omitempty"`
	Problem     string  `json:"problem,omitempty"`
	// Limits is by which means each limit of the worker is in force, where the share was applied.
	Limits map[string]string `json:"limits,omitempty"`
}
