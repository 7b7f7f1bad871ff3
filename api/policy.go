package api

import (
	"time"

	"github.com/tempool/tempool/spec"
)

// Cause is why an incarnation is replaced: the label under which rotations and restarts are counted.
type Cause string

// Causes of rotations, the planned replacement of a healthy incarnation. At most rotation.max_unavailable of a pool
// rotate at the same time.
const (
	CauseRequests   Cause = "requests"   // rotation.max_requests
	CauseMemory     Cause = "memory"     // rotation.max_memory
	CauseUptime     Cause = "uptime"     // rotation.max_uptime
	CauseGrade      Cause = "grade"      // a low health grade for too long
	CausePrediction Cause = "prediction" // the trend of memory or score predicts a failure
	CauseOperator   Cause = "operator"   // an operator's restart
	CauseSpec       Cause = "spec"       // rollout of a new spec
	CauseFiles      Cause = "files"      // watched files changed
	CausePressure   Cause = "pressure"   // the host is short of memory
	CauseLimits     Cause = "limits"     // it exceeds a limit that only its host's sampler enforces
)

// Causes of unplanned restarts.
const (
	CauseExit        Cause = "exit"         // the process exited
	CauseStartFailed Cause = "start_failed" // the process did not become ready
	// probes, leases or calls failed too often in a row (health.max_failures, health.max_call_errors)
	CauseUnhealthy  Cause = "unhealthy"
	CauseLease      Cause = "lease"      // a lease expired, or its holder checked it in with OutcomeClose
	CauseCutCall    Cause = "cut_call"   // the process did not give up a cancelled call within call.cancel_grace
	CauseHostLost   Cause = "host_lost"  // the host was lost, or its agent was restarted or shut down
	CauseSuperseded Cause = "superseded" // the host knew a higher incarnation, from an earlier pool of the same name
)

// RotationRequest asks a pool to permit the replacement of an incarnation in service. A worker may repeat it; the pool
// answers with RotationGrant.
type RotationRequest struct {
	Slot        int    `json:"slot"`
	Incarnation int64  `json:"incarnation"` // the one to replace
	Cause       Cause  `json:"cause"`
	Reason      string `json:"reason"`
}

// RotationGrant permits a worker to replace the incarnation of its request; the worker ignores a grant for another one.
type RotationGrant struct {
	Incarnation int64 `json:"incarnation"`
}

// RotationDone reports the end of a rotation. Failed means that the next process could not be started and the old one
// stays in service.
type RotationDone struct {
	Slot        int    `json:"slot"`
	Incarnation int64  `json:"incarnation"` // the one to replace
	Failed      bool   `json:"failed,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// Restart is the ID of the newest restart that the worker had got; "" from earlier builds.
	Restart string `json:"restart,omitempty"`
}

// FilesChanged reports that watched files (watch.paths) changed on a host and have been quiet for watch.debounce. The
// pool restarts its workers by watch.mode, with the first file in the reason.
type FilesChanged struct {
	Pool  string   `json:"pool"`
	Host  string   `json:"host"`
	Files []string `json:"files"` // absolute paths, a few dozen at most; More counts the rest
	More  int      `json:"more,omitempty"`
}

// MemoryPressure reports the memory pressure of a host to a pool with workers there. An agent sends it when the level
// changes and repeats it while the level is high or critical. It reports a lower level only after a minute.
type MemoryPressure struct {
	Host    string         `json:"host"`
	Level   string         `json:"level"`            // none, medium, high or critical: policy.Level
	Reason  string         `json:"reason,omitempty"` // from policy.Pressure
	Workers []WorkerMemory `json:"workers"`          // the pool's own on that host
}

// WorkerMemory is the memory of one worker's process tree.
type WorkerMemory struct {
	Slot        int   `json:"slot"`
	Incarnation int64 `json:"incarnation"`
	MemoryBytes int64 `json:"memory_bytes"`
}

// StartRequested asks a pool that holds starts back (start.rate_per_second, or an open breaker) to release one.
type StartRequested struct {
	Slot        int   `json:"slot"`
	Incarnation int64 `json:"incarnation"`
}

// StartsPaused makes workers request each start, for Reason; an empty Reason lets them start freely.
type StartsPaused struct {
	Reason string `json:"reason,omitempty"`
}

// StartPermitted releases one start of a worker.
type StartPermitted struct {
	Incarnation int64 `json:"incarnation"`
	// Pause, if positive, makes the worker the trial for all others: it retries until it is in service or gives up, with
	// at least this delay between two attempts.
	Pause spec.Duration `json:"pause,omitempty"`
}

// LimitsApplied are the limits that a running process was given beyond its spec: a share of its host's budget. Limits
// names the mechanism that enforces each; see StartResult.
type LimitsApplied struct {
	Incarnation int64             `json:"incarnation"`
	MemoryBytes int64             `json:"memory_bytes,omitempty"`
	CPUCores    float64           `json:"cpu_cores,omitempty"`
	Limits      map[string]string `json:"limits,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	At          time.Time         `json:"at,omitzero"`
}

// RebalanceRequest makes a host share its budget among workers of a pool.
type RebalanceRequest struct {
	Resources spec.Resources `json:"resources"`
	Processes []Process      `json:"processes"`
	// Apply applies the shares as limits; without it they are only computed (policy.mode = "observe").
	Apply bool `json:"apply"`
}

// RebalanceResult is the allocation of a budget. Problem is why there is none; nothing has changed then.
type RebalanceResult struct {
	Shares  []Share `json:"shares,omitempty"`
	Problem string  `json:"problem,omitempty"`
}

// Share is one worker's part of its host's budget.
type Share struct {
	Process
	MemoryBytes int64   `json:"memory_bytes"`
	CPUCores    float64 `json:"cpu_cores"`
	Applied     bool    `json:"applied,omitempty"`
	// Limits names the mechanism that enforces each limit of the worker, if the share was applied; see StartResult.
	Limits map[string]string `json:"limits,omitempty"`
}
