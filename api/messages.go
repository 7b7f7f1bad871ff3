package api

import (
	"time"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// CheckoutRequest asks a worker for a lease. RequestID makes it idempotent: the same one gets the same lease again.
type CheckoutRequest struct {
	RequestID string `json:"request_id,omitempty"`
	Holder    string `json:"holder"`
	Session   string `json:"session,omitempty"`
	// TTLMS is how long the lease lasts unless renewed, in milliseconds; 0 means the spec's lease.ttl.
	TTLMS int64 `json:"ttl_ms,omitempty"`
}

// RenewRequest extends a lease to TTLMS milliseconds from now (0: the spec's lease.ttl).
type RenewRequest struct {
	LeaseID string `json:"lease_id"`
	TTLMS   int64  `json:"ttl_ms,omitempty"`
}

// Lease is the exclusive right to one worker until ExpiresAt.
type Lease struct {
	ID          string `json:"id"`
	Worker      string `json:"worker"`
	Seq         int64  `json:"seq"`
	Incarnation int64  `json:"incarnation"`
	Holder      string `json:"holder"`
	Session     string `json:"session,omitempty"`
	Host        string `json:"host"`
	// Endpoint is the base URL of the gateway that carries calls under this lease: http://HOST:PORT or unix:PATH.
	Endpoint string `json:"endpoint"`
	// Address is where a program of protocol "none" listens by itself; empty for the others.
	Address   string    `json:"address,omitempty"`
	GrantedAt time.Time `json:"granted_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Outcome is how a lease went, as its holder says at checkin.
type Outcome string

// The three outcomes: the worker is fine; it served badly (it is degraded until a probe passes); it must be replaced.
const (
	OutcomeOK    Outcome = "ok"
	OutcomeError Outcome = "error"
	OutcomeClose Outcome = "close"
)

// Usage is what a holder did under a lease.
type Usage struct {
	Requests int64 `json:"requests"`
	Failed   int64 `json:"failed"`
	TotalMS  int64 `json:"total_ms"`
}

// CheckinRequest gives a lease back. One with an old lease ID changes nothing and is counted.
type CheckinRequest struct {
	LeaseID string  `json:"lease_id"`
	Outcome Outcome `json:"outcome,omitempty"` // "" means ok
	Error   string  `json:"error,omitempty"`
	Usage   Usage   `json:"usage"`
}

// CheckinResult is the state the worker is in after a checkin.
type CheckinResult struct {
	State lifecycle.State `json:"state"`
}

// Control is the payload of drain, stop, suspend and resume: who asks, and why.
type Control struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	Worker *int   `json:"worker,omitempty"` // for the pool's updates: the slot
}

// Restart is the payload of a worker's restart. The pool's rolling apply adds the spec the next incarnation gets.
type Restart struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// Cause is the word the restart is counted under; "" is CauseOperator.
	Cause Cause `json:"cause,omitempty"`
	// InPlace has the old process stop before the next one starts, whatever rotation.surge says.
	InPlace bool `json:"in_place,omitempty"`
	// Spec and SpecVersion are set together; without them the worker keeps the spec it has.
	Spec        *spec.Spec `json:"spec,omitempty"`
	SpecVersion int64      `json:"spec_version,omitempty"`
}

// WorkerState answers the query state.
type WorkerState struct {
	Worker      string           `json:"worker"`
	State       lifecycle.State  `json:"state"`
	Health      lifecycle.Health `json:"health"`
	Grade       string           `json:"grade"` // "" until samples are graded
	Score       *float64         `json:"score"` // 0–100; null until samples are graded
	Incarnation int64            `json:"incarnation"`
	Host        string           `json:"host"`
	PID         int              `json:"pid"`
	Lease       *Lease           `json:"lease"`
	Since       time.Time        `json:"since"`
	Reason      string           `json:"reason"`
	SpecVersion int64            `json:"spec_version"`
	LeaseSeq    int64            `json:"lease_seq"` // of the newest lease ever granted: what a gateway fences by
	LastRefusal string           `json:"last_refusal,omitempty"`
	// Limits says by which means each limit is in force for this process, see StartResult.
	Limits map[string]string `json:"limits,omitempty"`
	// LimitsApplied is what the process was given since it started (resources); nil where it has the limits of its spec.
	LimitsApplied *LimitsApplied `json:"limits_applied,omitempty"`
	// Successor is the incarnation that starts beside this one to take over (rotation.surge); 0 if none does.
	Successor int64 `json:"successor,omitempty"`
	// Leaving are incarnations that finish their calls, or end, beside this one.
	Leaving []int64 `json:"leaving,omitempty"`
	// Rotation is the replacement that is wanted or under way.
	Rotation *RotationStatus `json:"rotation,omitempty"`
	// LastRotation is the newest that is over.
	LastRotation *RotationStatus `json:"last_rotation,omitempty"`
}

// RotationStatus is one replacement of an incarnation that served.
type RotationStatus struct {
	Cause       Cause     `json:"cause"`
	Reason      string    `json:"reason"`
	Incarnation int64     `json:"incarnation"` // the one that goes
	Since       time.Time `json:"since"`       // when it was first wanted
	Granted     bool      `json:"granted,omitempty"`
	// Cut counts the calls that were still in flight when rotation.drain_timeout was over.
	Cut int `json:"cut,omitempty"`
	// Failed says why the incarnation serves on, when the next process could not be started.
	Failed string `json:"failed,omitempty"`
	// Observed says that the decision was only recorded: policy.mode is "observe".
	Observed bool `json:"observed,omitempty"`
}

// WorkerMetrics answers the query metrics.
type WorkerMetrics struct {
	State lifecycle.State `json:"state"`
	Metrics
}

// Metrics count over a worker's whole life. Memory and CPU are those of the whole process tree at the last checkpoint.
type Metrics struct {
	ID                  string     `json:"id"`
	RequestsServed      int64      `json:"requests_served"`
	RequestsFailed      int64      `json:"requests_failed"`
	TotalCallTimeMS     int64      `json:"total_call_time_ms"`
	AvgCallTimeMS       float64    `json:"avg_call_time_ms"`
	CurrentMemoryBytes  int64      `json:"current_memory_bytes"`
	PeakMemoryBytes     int64      `json:"peak_memory_bytes"`
	CPUPercent          float64    `json:"cpu_percent"`
	OpenFiles           int        `json:"open_files"`
	Threads             int        `json:"threads"`
	StartedAt           *time.Time `json:"started_at"`
	LastRequestAt       *time.Time `json:"last_request_at"`
	UptimeS             float64    `json:"uptime_s"`
	Restarts            int64      `json:"restarts"`
	ConsecutiveFailures int        `json:"consecutive_failures"`
	Rotations           int64      `json:"rotations"`
	LeasesGranted       int64      `json:"leases_granted"`
	LeasesRefused       int64      `json:"leases_refused"` // refused or stale signals; a refused update leaves no trace by design
	// RotationsByReason and RestartsByReason count the incarnations that went, by Cause: in good order, and otherwise.
	RotationsByReason map[string]int64 `json:"rotations_by_reason,omitempty"`
	RestartsByReason  map[string]int64 `json:"restarts_by_reason,omitempty"`
	// CallsCut counts calls that were still in flight when rotation.drain_timeout was over.
	CallsCut int64 `json:"calls_cut,omitempty"`
	// MemoryLimitBytes and CPULimitCores are the limits in force, as the host last told, whoever set them; 0 is none.
	MemoryLimitBytes int64   `json:"memory_limit_bytes,omitempty"`
	CPULimitCores    float64 `json:"cpu_limit_cores,omitempty"`
	// Warnings has a sentence for each measure that is graded degraded or worse.
	Warnings []string `json:"warnings,omitempty"`
}

// Worker is one row of ctl ps: state and metrics merged into one object.
type Worker struct {
	WorkerState
	Metrics
	// Endpoint is the base URL of its host's gateway; empty while no process of it runs.
	Endpoint string `json:"endpoint,omitempty"`
	// ControlPlane is ok, or lost while that gateway does not reach Temporal, as the gateway says; empty where it was not asked.
	ControlPlane string `json:"control_plane,omitempty"`
	// Error says why the worker could not be asked, when it could not; the rest is then what the pool last knew.
	Error string `json:"error,omitempty"`
}

// PoolWorkers is what ctl ps and ctl pool status print: the roster with live states and metrics.
type PoolWorkers struct {
	Pool        string   `json:"pool"`
	Ended       bool     `json:"ended,omitempty"` // the rest is how it stood then
	Size        int      `json:"size"`
	Ready       int      `json:"ready"`
	SpecVersion int64    `json:"spec_version"`
	Rollout     *Rollout `json:"rollout,omitempty"`
	Workers     []Worker `json:"workers"`
}

// ScaleRequest sets the number of slots.
type ScaleRequest struct {
	Size int `json:"size"`
}

// ScaleResult tells what a scale changes; the workers follow in the background.
type ScaleResult struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// ApplyRequest gives the pool a new spec; workers are restarted onto it, at most rotation.max_unavailable at a time.
type ApplyRequest struct {
	Spec spec.Spec `json:"spec"`
}

// ApplyResult names the version the spec got; versions count from 1.
type ApplyResult struct {
	SpecVersion int64 `json:"spec_version"`
	Changed     bool  `json:"changed"`
}

// RestartRequest restarts one slot, or all of them rolling when Worker is nil.
type RestartRequest struct {
	Worker *int   `json:"worker,omitempty"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// RestartResult lists the slots that will restart.
type RestartResult struct {
	Workers []int `json:"workers"`
}

// PoolStopResult tells how many workers are asked to end; the pool's workflow closes after the last of them has.
type PoolStopResult struct {
	Stopping int `json:"stopping"`
}

// Rollout is a rolling restart in progress.
type Rollout struct {
	Reason  string `json:"reason"`
	Waiting []int  `json:"waiting"` // not yet restarted
	Current []int  `json:"current"` // restarting now
	Done    int    `json:"done"`
	// Halted says why the rollout went no further, when it did not; the next apply or restart replaces it.
	Halted string `json:"halted,omitempty"`
}

// RosterEntry is what a pool last heard of one of its slots.
type RosterEntry struct {
	Slot        int             `json:"slot"`
	State       lifecycle.State `json:"state"`
	Incarnation int64           `json:"incarnation"`
	Host        string          `json:"host,omitempty"`
	PID         int             `json:"pid,omitempty"`
	Endpoint    string          `json:"endpoint,omitempty"`
	Since       time.Time       `json:"since"`
	Reason      string          `json:"reason,omitempty"`
	SpecVersion int64           `json:"spec_version"`
	LeaseSeq    int64           `json:"lease_seq"`
	Leaving     bool            `json:"leaving,omitempty"`     // asked to end for good
	Gone        bool            `json:"gone,omitempty"`        // its workflow has ended
	Resting     bool            `json:"resting,omitempty"`     // ended, and waits for an operator's restart
	ReasonCode  ReasonCode      `json:"reason_code,omitempty"` // it is out of service, if it is
	RunID       string          `json:"run_id,omitempty"`      // of the first run of its workflow
	// Starts and StartsFailed count the starts of this workflow that ended, and those of them that failed.
	Starts       int64 `json:"starts,omitempty"`
	StartsFailed int64 `json:"starts_failed,omitempty"`
}

// ReasonCode is in one word why a worker is out of service: the label under which workers are counted.
type ReasonCode string

// The words; "" is for a worker that serves, or is on its way to.
const (
	ReasonBackoff        ReasonCode = "backoff"    // it crashed, and is held back before the next start
	ReasonGaveUp         ReasonCode = "give_up"    // it failed too often in a row
	ReasonBreaker        ReasonCode = "breaker"    // too many starts of its pool failed
	ReasonStartRate      ReasonCode = "start_rate" // start.rate_per_second
	ReasonNoCapacity     ReasonCode = "no_room"    // no host takes it
	ReasonDegraded       ReasonCode = "degraded"   // a probe failed, or a lease ended in error
	ReasonSuspended      ReasonCode = "suspended"  // by an operator
	ReasonStopped        ReasonCode = "stopped"    // by an operator
	ReasonMemoryPressure ReasonCode = "pressure"   // its host is short of memory
)

// ReasonCodes lists the words.
func ReasonCodes() []ReasonCode {
	return []ReasonCode{ReasonBackoff, ReasonGaveUp, ReasonBreaker, ReasonStartRate, ReasonNoCapacity, ReasonDegraded, ReasonSuspended, ReasonStopped, ReasonMemoryPressure}
}

// PoolStatus answers the query status: last known states, no call to any worker.
type PoolStatus struct {
	Pool        string    `json:"pool"`
	Size        int       `json:"size"`
	Ready       int       `json:"ready"` // ready or busy
	SpecVersion int64     `json:"spec_version"`
	Spec        spec.Spec `json:"spec"`
	Stopping    bool      `json:"stopping,omitempty"`
	// Ended says that the pool has ended, and the rest how it stood then. Who asks sets it, not the workflow.
	Ended bool `json:"ended,omitempty"`
	// Held says why starts are held: the pool's breaker is open.
	Held string `json:"held,omitempty"`
	// Parked are the workers that are stopped until their host has memory again.
	Parked []int `json:"parked,omitempty"`
	// Pressure are the hosts of its workers that are short of memory, as they last told.
	Pressure []PressureStatus `json:"pressure,omitempty"`
	// Shares are how the hosts' budgets were last shared out (resources), AllocationProblem why they were not.
	Shares            []Share `json:"shares,omitempty"`
	AllocationProblem string  `json:"allocation_problem,omitempty"`
	// SessionsHost is the host that keeps the pool's sessions in a store of its own, once any are used; no other host takes workers then.
	SessionsHost string        `json:"sessions_host,omitempty"`
	Rollout      *Rollout      `json:"rollout,omitempty"`
	Workers      []RosterEntry `json:"workers"`
}

// SessionStoreClaimed tells a pool that a host wants to keep its sessions in a store that other hosts cannot reach. The first one is
// remembered, as PoolStatus.SessionsHost, for as long as it has workers of the pool.
type SessionStoreClaimed struct {
	Host string `json:"host"`
}

// PressureStatus is how short of memory a host is: medium, high or critical.
type PressureStatus struct {
	Host   string `json:"host"`
	Level  string `json:"level"`
	Reason string `json:"reason"`
}

// PoolStart is what starts a pool workflow.
type PoolStart struct {
	Pool string    `json:"pool"`
	Spec spec.Spec `json:"spec"`
	// Searchable says that the namespace knows Tempool's search attributes, so that workflows may upsert them.
	Searchable bool `json:"searchable,omitempty"`
}

// RefusalDetails is the detail of a refused update.
type RefusalDetails struct {
	RetryAfterMS int64 `json:"retry_after_ms"`
}
