package worker

import (
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// Run is the whole state of a worker: the input of its workflow, and the argument of its continue-as-new.
type Run struct {
	Pool        string    `json:"pool"`
	Slot        int       `json:"slot"`
	Spec        spec.Spec `json:"spec"`
	SpecVersion int64     `json:"spec_version"`
	// Searchable says that the namespace has Tempool's search attributes.
	Searchable bool `json:"searchable,omitempty"`
	// Standalone says that the worker has no pool to report to.
	Standalone bool `json:"standalone,omitempty"`
	// ContinueEvery, if positive, is after how many iterations the run continues as new; tests set it.
	ContinueEvery int `json:"continue_every,omitempty"`

	Machine lifecycle.Machine `json:"machine"`
	Process RunningProcess    `json:"process"`

	LeaseState
	StartState
	HealthState
	SuspendState
	EndState
	RotationState
	ReportState
	CarriedState
}

// RunningProcess is the process of the current incarnation.
type RunningProcess struct {
	Host     string `json:"host,omitempty"`
	Epoch    int64  `json:"epoch,omitempty"` // of the agent that started it
	PID      int    `json:"pid,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Address  string `json:"address,omitempty"`
	// Limits names the mechanism that enforces each limit; LimitsApplied is what the process was given since it started.
	Limits        map[string]string  `json:"limits,omitempty"`
	LimitsApplied *api.LimitsApplied `json:"applied,omitempty"`
	Rules         api.WatchRules     `json:"rules,omitzero"` // those of its start
	// Reported is the usage that checkins have reported, Observed what the host has observed; see usage.go.
	Reported api.Usage `json:"reported,omitzero"`
	Observed api.Usage `json:"observed,omitzero"`
	// DrainUntil is when its drain times out; zero before that begins.
	DrainUntil time.Time `json:"drain_until,omitzero"`
	// ObservedCauses are the causes of rotations that policy.mode = "observe" only recorded.
	ObservedCauses []api.Cause `json:"observed_causes,omitempty"`
}

// LeaseState is the current lease and the numbers that fence earlier ones.
type LeaseState struct {
	Lease    *api.Lease `json:"lease,omitempty"`
	LeaseSeq int64      `json:"lease_seq"`
	Grants   []Grant    `json:"grants,omitempty"` // newest last, at most maxGrants
	// Withdrawn are the attempts at a checkout whose callers left before they came: newest last, at most maxWithdrawn.
	Withdrawn []string `json:"withdrawn,omitempty"`
}

// Grant is the lease that a request got; the same request gets it again.
type Grant struct {
	RequestID string    `json:"request_id"`
	AttemptID string    `json:"attempt_id,omitempty"`
	Lease     api.Lease `json:"lease"`
}

// StartState decides when the next incarnation starts.
type StartState struct {
	Wait Wait `json:"wait"`
	// StartsPaused is why the pool must permit each start; empty if it need not. StartPermitted says that it permits the
	// next one.
	StartsPaused   string `json:"starts_paused,omitempty"`
	StartPermitted bool   `json:"start_permitted,omitempty"`
	// TrialPause, if positive, says that this worker's starts test the pool's breaker: at least this far apart, without
	// asking, until the worker is ready or gives up.
	TrialPause time.Duration `json:"trial_pause,omitempty"`
	// HighestIncarnation is the highest incarnation number in use, when a successor has used numbers.
	HighestIncarnation int64 `json:"highest_incarnation,omitempty"`
	Failures           int   `json:"failures,omitempty"`    // consecutive ends that nobody requested
	ShortLived         bool  `json:"short_lived,omitempty"` // the newest failure came soon after its start
	Starts             int64 `json:"starts,omitempty"`
	StartsFailed       int64 `json:"starts_failed,omitempty"`
}

// Wait is why a worker is pending: until a time, until a host has capacity, or until its pool permits the start.
type Wait struct {
	Until    time.Time `json:"until,omitzero"`
	Capacity bool      `json:"capacity,omitempty"`
	Pool     bool      `json:"pool,omitempty"`
	Asked    bool      `json:"asked,omitempty"` // the pool
	For      string    `json:"for,omitempty"`   // the reason of the start, once the pool permits it
	Reason   string    `json:"reason,omitempty"`
}

// HealthState is what probes and samples of the current incarnation have shown.
type HealthState struct {
	ProbeFailures int `json:"probe_failures,omitempty"` // consecutive
	LeaseErrors   int `json:"lease_errors,omitempty"`   // consecutive leases that ended in error
	// DegradeReason is why a leased worker is degraded when its lease ends, unless a probe passes before; empty if it is
	// not.
	DegradeReason  string          `json:"degrade_reason,omitempty"`
	NextCheckpoint time.Time       `json:"next_checkpoint"`
	Sample         *api.Sample     `json:"sample,omitempty"`
	Assessment     *api.Assessment `json:"assessment,omitempty"`
	// Observing is what the host observes of the process, and Events are its observations that wait to be handled, oldest
	// first.
	Observing observing          `json:"observing,omitzero"`
	Events    []api.ProcessEvent `json:"events,omitempty"`
	// EpochEnded says that the agent of the process has ended or is lost.
	EpochEnded *api.EpochEnded `json:"epoch_ended,omitempty"`
}

// observing is what a host was asked to observe of an incarnation; see api.WatchRequest.
type observing struct {
	Incarnation int64          `json:"incarnation,omitempty"`
	Probe       bool           `json:"probe,omitempty"`
	Failures    int            `json:"failures,omitempty"`
	Rules       api.WatchRules `json:"rules,omitzero"`
}

// EndState decides what follows the end of the current incarnation.
type EndState struct {
	Intent       Intent          `json:"intent,omitempty"`
	IntentReason string          `json:"intent_reason,omitempty"`
	Cause        api.Cause       `json:"cause,omitempty"`     // of the end
	NextSpec     *api.WorkerSpec `json:"next_spec,omitempty"` // of the next incarnation
	Resting      bool            `json:"resting,omitempty"`   // until an operator's restart
	GaveUp       bool            `json:"gave_up,omitempty"`   // the reason why it rests
	// LastRestart is the ID of the newest restart, Begun that before the current incarnation began.
	LastRestart string `json:"last_restart,omitempty"`
	Begun       string `json:"begun,omitempty"`
	// RestOrderedAt is when the newest stop or drain by an operator arrived, unless a restart came after it.
	RestOrderedAt time.Time `json:"rest_ordered_at,omitzero"`

	Ending bool `json:"ending,omitempty"` // the workflow completes after the process has ended
}

// RotationState is the replacement of an incarnation that still serves.
type RotationState struct {
	Rotation     *rotation             `json:"rotation,omitempty"`
	LastRotation *api.RotationStatus   `json:"last_rotation,omitempty"`
	Successor    *successor            `json:"successor,omitempty"`
	Draining     []drainingIncarnation `json:"draining,omitempty"`
	// GradeRotations counts consecutive incarnations that were rotated for their grade.
	GradeRotations int `json:"grade_rotations,omitempty"`
}

// ReportState is what the worker shows to others.
type ReportState struct {
	Counters    Counters `json:"counters"`
	LastRefusal string   `json:"last_refusal,omitempty"`
	Reported    reported `json:"reported"` // to the pool and the search attributes
	// ReportSeq is the number of the newest report to the pool.
	ReportSeq int64 `json:"report_seq,omitempty"`
}

// Counters feed the query metrics.
type Counters struct {
	api.WorkerCounters
	LastRequestAt time.Time `json:"last_request_at,omitzero"`
	LastGrantAt   time.Time `json:"last_grant_at,omitzero"`
}
