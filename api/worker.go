package api

import (
	"time"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// Control is the payload of the updates and signals that give a reason only.
type Control struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	Worker *int   `json:"worker,omitempty"` // the slot, in updates of the pool
	// LeaseID is the lease under which a pool ends the worker; the worker takes it back.
	LeaseID string `json:"lease_id,omitempty"`
}

// Order is the payload of SignalOrder: what an operator or the pool has a worker do. The other fields are those of a
// restart; a rolling apply adds the spec of the next incarnation.
type Order struct {
	Kind   string `json:"kind,omitempty"` // SignalDrain, SignalStop, SignalSuspend, SignalResume or SignalRestart
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// ID names the restart: the worker carries out once what arrives several times. "" is another one each time.
	ID string `json:"id,omitempty"`
	// Cause is the label under which the restart is counted; "" is CauseOperator. A pool drains a worker with
	// CausePressure to free memory for a while.
	Cause Cause `json:"cause,omitempty"`
	// InPlace stops the old process before the next one starts, whatever rotation.surge says.
	InPlace bool `json:"in_place,omitempty"`
	// Spec and SpecVersion are set together; without them the worker keeps its spec.
	Spec        *spec.Spec `json:"spec,omitempty"`
	SpecVersion int64      `json:"spec_version,omitempty"`
}

// WorkerState answers the query state.
type WorkerState struct {
	Worker string `json:"worker"`
	// Ended says that the workflow has ended; the other fields are then its last state. The client sets it, not the
	// workflow.
	Ended       bool             `json:"ended,omitempty"`
	State       lifecycle.State  `json:"state"`
	Health      lifecycle.Health `json:"health"`
	Grade       string           `json:"grade"` // "" until samples are graded
	Score       *float64         `json:"score"` // 0–100; null until samples are graded
	Incarnation int64            `json:"incarnation"`
	Host        string           `json:"host"`
	PID         int              `json:"pid"`
	Lease       *Lease           `json:"lease"`
	AsOf        time.Time        `json:"as_of,omitzero"` // Temporal's time of the newest workflow task
	Since       time.Time        `json:"since"`
	UpdatedAt   time.Time        `json:"updated_at,omitzero"` // when state or health last changed
	Reason      string           `json:"reason"`
	SpecVersion int64            `json:"spec_version"`
	LeaseSeq    int64            `json:"lease_seq"` // of the newest lease ever granted; gateways fence by it
	LastRefusal string           `json:"last_refusal,omitempty"`
	// Limits names the mechanism that enforces each limit of this process; see StartResult.
	Limits map[string]string `json:"limits,omitempty"`
	// LimitsApplied are the limits that the process was given after its start (resources); nil if it has those of its
	// spec.
	LimitsApplied *LimitsApplied `json:"limits_applied,omitempty"`
	// Successor is the incarnation that starts beside this one to replace it (rotation.surge); 0 if there is none.
	Successor int64 `json:"successor,omitempty"`
	// Draining lists the older incarnations that finish their calls or are stopping.
	Draining []int64 `json:"draining,omitempty"`
	// Rotation is the requested or running replacement.
	Rotation *RotationStatus `json:"rotation,omitempty"`
	// LastRotation is the newest finished one.
	LastRotation *RotationStatus `json:"last_rotation,omitempty"`
}

// WorkerSpec answers the query spec: the spec with which the worker started its process, or is about to, and its
// version in the pool.
type WorkerSpec struct {
	Spec    spec.Spec `json:"spec"`
	Version int64     `json:"version"`
}

// RotationStatus is one replacement of an incarnation in service.
type RotationStatus struct {
	Cause       Cause     `json:"cause"`
	Reason      string    `json:"reason"`
	Incarnation int64     `json:"incarnation"` // the one to replace
	Since       time.Time `json:"since"`       // when the replacement was first requested
	Granted     bool      `json:"granted,omitempty"`
	// CallsCut counts the calls still in flight when rotation.drain_timeout passed.
	CallsCut int `json:"calls_cut,omitempty"`
	// Failed is why the next process could not be started; the old incarnation stays in service.
	Failed string `json:"failed,omitempty"`
	// Observed says that the decision was only recorded (policy.mode = "observe").
	Observed bool `json:"observed,omitempty"`
}

// WorkerMetrics answers the query metrics.
type WorkerMetrics struct {
	State lifecycle.State `json:"state"`
	Metrics
	// Counted is what the counters hold of the present process, whose host may know of more.
	Counted Usage `json:"counted,omitzero"`
}

// WorkerCounters count over a worker's whole life.
type WorkerCounters struct {
	RequestsServed  int64 `json:"requests_served"`
	RequestsFailed  int64 `json:"requests_failed"`
	TotalCallTimeMS int64 `json:"total_call_time_ms"`
	PeakMemoryBytes int64 `json:"peak_memory_bytes"`
	LeasesGranted   int64 `json:"leases_granted"`
	LeasesRefused   int64 `json:"leases_refused"` // rejected or stale signals; a rejected update leaves no trace by design
	Rotations       int64 `json:"rotations"`
	// CallsCut counts the calls still in flight when rotation.drain_timeout passed, and the cancelled ones that the worker
	// did not give up.
	CallsCut int64 `json:"calls_cut,omitempty"`
	// RotationsByReason and RestartsByReason count the replaced incarnations by Cause: planned ones, and all others.
	RotationsByReason map[string]int64 `json:"rotations_by_reason,omitempty"`
	RestartsByReason  map[string]int64 `json:"restarts_by_reason,omitempty"`
	// EndedByOutcome counts the processes that have ended by their outcome: stopped, finished, failed or killed.
	EndedByOutcome map[string]int64 `json:"ended_by_outcome,omitempty"`
}

// Metrics are a worker's counters and figures. Memory and CPU are those of the process tree at the last checkpoint.
type Metrics struct {
	ID string `json:"id"`
	WorkerCounters
	AvgCallTimeMS       float64    `json:"avg_call_time_ms"`
	CurrentMemoryBytes  int64      `json:"current_memory_bytes"`
	MemorySource        string     `json:"memory_source,omitempty"` // of CurrentMemoryBytes; see Sample
	CPUPercent          float64    `json:"cpu_percent"`
	OpenFiles           int        `json:"open_files"`
	Threads             int        `json:"threads"`
	StartedAt           *time.Time `json:"started_at"`
	LastRequestAt       *time.Time `json:"last_request_at"`
	UptimeS             float64    `json:"uptime_s"`
	Restarts            int64      `json:"restarts"`
	ConsecutiveFailures int        `json:"consecutive_failures"`
	// Network is what the present process tree has received and sent; nil unless it has a network namespace of its own.
	Network *NetworkBytes `json:"network,omitempty"`
	// MemoryLimitBytes and CPULimitCores are the limits in effect, as the host last reported; 0 is none.
	MemoryLimitBytes int64   `json:"memory_limit_bytes,omitempty"`
	CPULimitCores    float64 `json:"cpu_limit_cores,omitempty"`
	// BaselineBytes is the memory that the program needs, and MaxMemoryBytes that at which it is rotated, as the host last
	// reported; 0 is not known, and none.
	BaselineBytes  int64 `json:"baseline_bytes,omitempty"`
	MaxMemoryBytes int64 `json:"max_memory_bytes,omitempty"`
	// CallsPerMinute are the calls of the last minute, as the host last reported: those that the program counts as
	// api_calls, else the requests.
	CallsPerMinute float64 `json:"calls_per_minute"`
	// Warnings has a sentence for each measure that is graded degraded or worse.
	Warnings []string `json:"warnings,omitempty"`
	// Watch says why the worker should be watched closely, as prediction saw it at the last report of its host, and
	// FailsInS how long it then had to its limit; "" and 0 if no failure is in sight.
	Watch    string  `json:"watch,omitempty"`
	FailsInS float64 `json:"fails_in_s,omitempty"`
}

// Assess takes what an assessment says beside the grade and the score, which are part of the state.
func (m *Metrics) Assess(a Assessment) {
	m.Warnings, m.BaselineBytes, m.MaxMemoryBytes, m.CallsPerMinute =
		a.Warnings, a.BaselineBytes, a.MaxMemoryBytes, a.CallsPerMinute
	m.Watch, m.FailsInS = a.Watch, float64(a.FailsInMS)/1000
}

// Worker is one row of tempool ps: state and metrics merged into one object.
type Worker struct {
	WorkerState
	Metrics
	// Endpoint is the base URL of its host's gateway; empty while it has no process.
	Endpoint string `json:"endpoint,omitempty"`
	// InFlight counts the calls in flight on its process, as the host last reported.
	InFlight int `json:"in_flight,omitempty"`
	// Process is the number of its process within the incarnation, as the host last reported; isolated workers have many.
	// Key is the key that this process serves; nil for none.
	Process int64   `json:"process,omitempty"`
	Key     *KeyUse `json:"key,omitempty"`
	// MCPClient is the MCP client that has this process to itself; nil for none.
	MCPClient *MCPClient `json:"mcp_client,omitempty"`
	// Error is why the worker's query failed; the other fields are then those of the roster.
	Error string      `json:"error,omitempty"`
	Entry RosterEntry `json:"-"` // its last report to its pool
}

// ReasonOutOfService says why a worker is out of service, or that it did not answer; it is empty for a worker in
// service.
func (w *Worker) ReasonOutOfService() string {
	switch {
	case w.Error != "":
		return "no answer, showing the pool's last report: " + w.Error
	case w.State.InService():
		return ""
	}
	return w.Reason
}

// Adopt replaces what the pool and the host last said of the worker by its own answer.
func (w *Worker) Adopt(s WorkerState) {
	if s.Grade == "" {
		s.Grade, s.Score = w.Grade, w.Score
	}
	w.WorkerState = s
}
