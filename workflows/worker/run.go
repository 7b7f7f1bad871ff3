package worker

import (
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// Run is the whole state of a worker: its input, and what it hands to its next run when it continues as new.
type Run struct {
	Pool        string    `json:"pool"`
	Slot        int       `json:"slot"`
	Spec        spec.Spec `json:"spec"`
	SpecVersion int64     `json:"spec_version"`
	Searchable  bool      `json:"searchable,omitempty"`
	// Orphan is set for a worker that has no pool to report to.
	Standalone bool `json:"orphan,omitempty"`
	// ContinueEvery, if positive, continues as new after that many turns of the loop; tests of carry-over use it.
	ContinueEvery int `json:"continue_every,omitempty"`

	Machine lifecycle.Machine `json:"machine"`
	Process RunningProcess    `json:"process"`

	Lease    *api.Lease `json:"lease,omitempty"`
	LeaseSeq int64      `json:"lease_seq"`
	Grants   []Grant    `json:"grants,omitempty"` // newest last, at most maxGrants

	Intent           Intent       `json:"intent,omitempty"`
	IntentReason     string       `json:"intent_reason,omitempty"`
	SuspendWanted    bool         `json:"suspend_wanted,omitempty"`
	Ending           bool         `json:"ending,omitempty"`  // cancelled: the workflow ends when the process has
	IgnoreNextCancel bool         `json:"excused,omitempty"` // the pool is about to continue as new
	Resting          bool         `json:"resting,omitempty"`
	GaveUp           bool         `json:"gave_up,omitempty"` // which is why it rests
	NextSpec         *VersionSpec `json:"next_spec,omitempty"`
	Wait             Wait         `json:"hold"`
	Failures         int          `json:"failures,omitempty"`       // ends in a row that nobody asked for
	ShortLived       bool         `json:"brief,omitempty"`          // the newest of them followed soon on a start
	ProbeFailures    int          `json:"probe_failures,omitempty"` // in a row, of this incarnation
	LeaseErrors      int          `json:"lease_errors,omitempty"`   // leases in a row that ended in error
	NextCheckpoint   time.Time    `json:"next_checkpoint"`
	// Reached is the highest incarnation number given out, when a successor that did not make it had it.
	HighestIncarnation int64                 `json:"reached,omitempty"`
	Cause              api.Cause             `json:"cause,omitempty"` // of the end that the next incarnation follows on
	Rotation           *rotation             `json:"rotation,omitempty"`
	LastRotation       *api.RotationStatus   `json:"last_rotation,omitempty"`
	Successor          *successor            `json:"successor,omitempty"`
	Draining           []drainingIncarnation `json:"leaving,omitempty"`
	// Held is why the pool wants to be asked before each start; Released that it let the next one go.
	StartsHeld    string `json:"held,omitempty"`
	StartReleased bool   `json:"released,omitempty"`
	// TrialPause, if positive, says that this worker tries for its pool, whose other starts are held: at least so long apart, until it
	// serves or gives up.
	TrialPause   time.Duration `json:"trial_pause,omitempty"`
	Starts       int64         `json:"starts,omitempty"`
	StartsFailed int64         `json:"starts_failed,omitempty"`

	Counters Counters    `json:"counters"`
	Sample   *api.Sample `json:"sample,omitempty"`
	// Assessment is the newest the host told of this incarnation; GradeRotations counts incarnations in a row that went for their grade.
	Assessment     *api.Assessment `json:"assessment,omitempty"`
	GradeRotations int             `json:"grade_row,omitempty"`
	LastRefusal    string          `json:"last_refusal,omitempty"`
	Reported       reported        `json:"reported"` // what the pool and the search attributes were last told
}

// RunningProcess is the incarnation's process, where it runs.
type RunningProcess struct {
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	Endpoint  string    `json:"endpoint,omitempty"`
	Address   string    `json:"address,omitempty"`
	// Limits is by which means each limit is in force, Applied what the process was given since it started.
	Limits        map[string]string  `json:"limits,omitempty"`
	LimitsApplied *api.LimitsApplied `json:"applied,omitempty"`
	// RequestLimit is after how many requests it is rotated, 0 for never; Requests are those that checkins told of.
	RequestLimit int64 `json:"request_limit,omitempty"`
	Requests     int64 `json:"requests,omitempty"`
	// Told is what checkins told of it, Seen what its host told last; see usage.go.
	Reported api.Usage `json:"told,omitzero"`
	Observed api.Usage `json:"seen,omitzero"`
	// InitialBytes is the memory it had when it became ready.
	InitialBytes int64 `json:"born_bytes,omitempty"`
	// Observed are the causes for which a rotation was decided and only recorded (policy.mode).
	ObservedCauses []api.Cause `json:"observed,omitempty"`
}

// Intent is what is to follow once the process has ended. The zero value leaves it to the recovery policy.
type Intent string

// VersionSpec is a spec that takes effect with the next incarnation.
type VersionSpec struct {
	Spec    spec.Spec `json:"spec"`
	Version int64     `json:"version"`
}

// Wait is why a worker is pending: until a time, until some host has room, or until its pool lets the start go.
type Wait struct {
	Until    time.Time `json:"until,omitzero"`
	Capacity bool      `json:"room,omitempty"`
	Pool     bool      `json:"pool,omitempty"`
	Asked    bool      `json:"asked,omitempty"` // the pool
	For      string    `json:"for,omitempty"`   // what the start is for, once the pool lets it go
	Reason   string    `json:"reason,omitempty"`
}

// Counters feed the query metrics; they count over the worker's whole life.
type Counters struct {
	RequestsServed  int64     `json:"requests_served"`
	RequestsFailed  int64     `json:"requests_failed"`
	TotalCallTimeMS int64     `json:"total_call_time_ms"`
	LastRequestAt   time.Time `json:"last_request_at,omitzero"`
	LastGrantAt     time.Time `json:"last_grant_at,omitzero"`
	PeakMemoryBytes int64     `json:"peak_memory_bytes"`
	LeasesGranted   int64     `json:"leases_granted"`
	LeasesRefused   int64     `json:"leases_refused"`
	Rotations       int64     `json:"rotations"`
	CallsCut        int64     `json:"calls_cut,omitempty"`
	// By cause: incarnations that made way in good order, and others that were followed by the next.
	RotationsByReason map[string]int64 `json:"rotations_by_reason,omitempty"`
	RestartsByReason  map[string]int64 `json:"restarts_by_reason,omitempty"`
}
