package api

import (
	"time"

	"github.com/tempool/tempool/lifecycle"
)

// TransitionEvent is the data of EventWorkerTransitioned.
type TransitionEvent struct {
	lifecycle.Transition
	// Host and PID are those of the process, if there is one.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// ProcessEventData is the data of EventProcessStarted, EventProcessStartFailed and EventProcessEnded. Fields that do
// not concern the type are left out.
type ProcessEventData struct {
	Host        string          `json:"host"`
	Incarnation int64           `json:"incarnation"`
	PID         int             `json:"pid,omitempty"`
	TookMS      int64           `json:"took_ms,omitempty"` // from the spawn until it was ready
	Outcome     lifecycle.State `json:"outcome,omitempty"`
	Code        *int            `json:"code,omitempty"` // of its exit
	Signal      string          `json:"signal,omitempty"`
	Reason      string          `json:"reason,omitempty"`
}

// LeaseEvent is the data of the events of leases. Fields that do not concern the type are left out.
type LeaseEvent struct {
	LeaseID     string     `json:"lease_id,omitempty"`
	Holder      string     `json:"holder,omitempty"`
	Session     string     `json:"session,omitempty"`
	Incarnation int64      `json:"incarnation,omitempty"`
	Host        string     `json:"host,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	// Outcome is ok, error or close as its holder said, or ended if it did not release the lease.
	Outcome string `json:"outcome,omitempty"`
	Usage   *Usage `json:"usage,omitempty"` // as its holder reported it
	// Request and Code say what was refused: checkout, renew or checkin.
	Request string `json:"request,omitempty"`
	Code    Code   `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// RotationEvent is the data of the events of rotations.
type RotationEvent struct {
	Incarnation int64  `json:"incarnation"` // that is replaced
	Cause       Cause  `json:"cause"`
	Reason      string `json:"reason"`
	// Observed says that policy.mode is observe: the rotation is not carried out.
	Observed bool `json:"observed,omitempty"`
	InPlace  bool `json:"in_place,omitempty"` // the old process stops before the next one starts
	// Failed is why the incarnation was not replaced, and CallsCut how many calls the drain timeout cut.
	Failed   string `json:"failed,omitempty"`
	CallsCut int    `json:"calls_cut,omitempty"`
}

// ProbeEvent is the data of EventWorkerProbed.
type ProbeEvent struct {
	Host        string `json:"host"`
	Incarnation int64  `json:"incarnation"`
	Healthy     bool   `json:"healthy"`
	Reason      string `json:"reason,omitempty"` // of a failure
}

// SampleEvent is the data of EventWorkerSampled.
type SampleEvent struct {
	Host        string `json:"host"`
	Incarnation int64  `json:"incarnation"`
	Sample
	Requests int64 `json:"requests"` // that the incarnation has served
}

// LimitEvent is the data of EventLimitExceeded.
type LimitEvent struct {
	Host        string `json:"host"`
	Incarnation int64  `json:"incarnation"`
	Limit       string `json:"limit"` // its key in the section limits
	Reason      string `json:"reason"`
}

// RebalanceEvent is the data of EventResourcesRebalanced.
type RebalanceEvent struct {
	Incarnation int64   `json:"incarnation"`
	MemoryBytes int64   `json:"memory_bytes"`
	CPUCores    float64 `json:"cpu_cores"`
}

// CallEvent is the data of EventCallFailed.
type CallEvent struct {
	Host        string `json:"host"`
	Incarnation int64  `json:"incarnation,omitempty"` // if a worker was chosen
	Method      string `json:"method,omitempty"`
	Code        Code   `json:"code,omitempty"`
	Started     bool   `json:"started"` // a worker may have seen it
	Reason      string `json:"reason"`
	// TraceID is that of its OpenTelemetry trace, in hex, if it is sampled.
	TraceID string `json:"trace_id,omitempty"`
}

// PoolEvent is the data of the events of pools. Fields that do not concern the type are left out.
type PoolEvent struct {
	From        *int   `json:"from,omitempty"` // size
	To          *int   `json:"to,omitempty"`
	SpecVersion int64  `json:"spec_version,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

// The alerts that a pool raises: what lasts until it is mended. Prometheus has the others.
const (
	AlertWorkerGaveUp  = "worker_gave_up" // it failed too often in a row, or with recovery.restart = "never"
	AlertStartsHeld    = "starts_held"    // too many starts of the pool failed, and one worker at a time tries
	AlertRolloutHalted = "rollout_halted" // a worker did not come back from a rolling restart
)

// AlertEvent is the data of EventAlertRaised and EventAlertCleared; their source is what is wrong.
type AlertEvent struct {
	Alert string `json:"alert"` // one of the Alert constants
	// Reason is why it was raised.
	Reason string `json:"reason"`
}

// HostEvent is the data of the events of hosts.
type HostEvent struct {
	Epoch    int64    `json:"epoch"`
	Instance string   `json:"instance"`
	Machine  string   `json:"machine,omitempty"`
	Labels   []string `json:"labels,omitempty"`
	Capacity int      `json:"capacity,omitempty"`
	Reason   string   `json:"reason,omitempty"`
}

// MissedEvent is the data of EventMissed.
type MissedEvent struct {
	Count  uint64 `json:"count,omitempty"` // events of any type and pool; 0 if nobody knows
	Reason string `json:"reason"`
}

// SessionEvent is the data of the events of sessions. Fields that do not concern the type are left out.
type SessionEvent struct {
	Host    string `json:"host"`
	Session string `json:"session"`
	Store   string `json:"store,omitempty"`  // memory, embedded or redis
	From    string `json:"from,omitempty"`   // the worker that it was bound to before
	Worker  string `json:"worker,omitempty"` // the worker that it is bound to since, or that did not release it
	// Incarnation is that of the process which ended without releasing it, and Reason why; or that of the process which an
	// MCP client has to itself, and Principal the client.
	Incarnation int64  `json:"incarnation,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Principal   string `json:"principal,omitempty"`
}
