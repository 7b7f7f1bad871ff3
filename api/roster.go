package api

import (
	"slices"
	"time"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// PoolStatus answers the query status. It has the workers' last known states and queries no worker.
type PoolStatus struct {
	Pool        string    `json:"pool"`
	Size        int       `json:"size"`
	Ready       int       `json:"ready"` // ready or busy
	SpecVersion int64     `json:"spec_version"`
	Spec        spec.Spec `json:"spec"`
	Stopping    bool      `json:"stopping,omitempty"`
	// Ended says that the pool has ended; the other fields are then its last state. The client sets it, not the workflow.
	Ended bool `json:"ended,omitempty"`
	// StartsPaused is why starts are paused: the pool's breaker is open.
	StartsPaused string `json:"starts_paused,omitempty"`
	// StoppedForMemory lists the workers that are stopped until their host has free memory again.
	StoppedForMemory []int `json:"stopped_for_memory,omitempty"`
	// Pressure lists the hosts of its workers that are short of memory, as they last reported.
	Pressure []PressureStatus `json:"pressure,omitempty"`
	// Shares are the last allocation of the hosts' budgets (resources); AllocationProblem is why the last attempt failed.
	Shares            []Share `json:"shares,omitempty"`
	AllocationProblem string  `json:"allocation_problem,omitempty"`
	// SessionsHost is the host whose local store has the pool's sessions, once there are any; no other host then takes
	// workers.
	SessionsHost string `json:"sessions_host,omitempty"`
	// Scale is the demand for a pool whose size follows it, else nil.
	Scale   *ScaleStatus  `json:"scale,omitempty"`
	Rollout *Rollout      `json:"rollout,omitempty"`
	Workers []RosterEntry `json:"workers"`
}

// RosterEntry is the report of one slot to its pool, the message of SignalWorkerChanged; in a status, the last one.
type RosterEntry struct {
	Slot        int             `json:"slot"`
	State       lifecycle.State `json:"state"`
	Incarnation int64           `json:"incarnation"`
	Host        string          `json:"host,omitempty"`
	PID         int             `json:"pid,omitempty"`
	Endpoint    string          `json:"endpoint,omitempty"`
	Epoch       int64           `json:"epoch,omitempty"` // of the agent on Host
	Since       time.Time       `json:"since"`
	Reason      string          `json:"reason,omitempty"`
	SpecVersion int64           `json:"spec_version"`
	LeaseSeq    int64           `json:"lease_seq"`
	Removing    bool            `json:"removing,omitempty"`    // is being removed from the pool
	Gone        bool            `json:"gone,omitempty"`        // its workflow has ended
	Resting     bool            `json:"resting,omitempty"`     // has ended and waits for an operator's restart
	ReasonCode  ReasonCode      `json:"reason_code,omitempty"` // why it is out of service
	// RestOrderedAt is when the worker got an operator's newest stop or drain, if it rests since then, or will as soon as
	// its process has ended; otherwise zero.
	RestOrderedAt time.Time `json:"rest_ordered_at,omitzero"`
	// Begun is the ID of the newest restart before its incarnation began; "" from earlier builds. The start of its
	// workflow is one.
	Begun string `json:"begun,omitempty"`

	RunID string `json:"run_id,omitempty"` // of the first run of its workflow
	// ReportSeq rises with each report of a workflow, since they may arrive in another order; 0 from an agent.
	ReportSeq int64 `json:"report_seq,omitempty"`
	// Starts and StartsFailed count the finished starts of this workflow, and those of them that failed.
	Starts       int64 `json:"starts,omitempty"`
	StartsFailed int64 `json:"starts_failed,omitempty"`
	// Failures is Metrics.ConsecutiveFailures.
	Failures int `json:"failures,omitempty"`
}

// Worker is the worker of a pool as far as its entry says; failed if its workflow has ended.
func (e RosterEntry) Worker(pool string) Worker {
	name, state := WorkerName(pool, e.Slot), e.State
	if e.Gone && !state.Outcome() {
		state = lifecycle.Failed
	}
	return Worker{
		WorkerState: WorkerState{
			Worker: name, State: state, Incarnation: e.Incarnation, Host: e.Host, PID: e.PID, Since: e.Since,
			Reason: e.Reason, SpecVersion: e.SpecVersion, LeaseSeq: e.LeaseSeq,
		},
		Metrics:  Metrics{ID: name, Restarts: max(0, e.Incarnation-1), ConsecutiveFailures: e.Failures},
		Endpoint: e.Endpoint, Entry: e,
	}
}

// View is the pool as its status alone shows it: with each worker's last report, and without figures.
func (s PoolStatus) View() PoolWorkers {
	v := PoolWorkers{Pool: s.Pool, Ended: s.Ended, Size: s.Size, SpecVersion: s.SpecVersion, Rollout: s.Rollout,
		Scale: s.Scale, Workers: make([]Worker, len(s.Workers)), Status: s}
	for i, entry := range s.Workers {
		v.Workers[i] = entry.Worker(s.Pool)
	}
	v.CountReady()
	return v
}

// ProcessesStarted is the message of SignalProcessesStarted: an agent's report to a pool about processes that start or
// have become ready.
type ProcessesStarted struct {
	Host      string           `json:"host"`
	Epoch     int64            `json:"epoch"`
	Endpoint  string           `json:"endpoint"`
	Processes []StartedProcess `json:"processes"`
}

// StartedProcess is a worker whose process starts (State starting, no PID) or has become ready; Announce has the counts
// after that.
type StartedProcess struct {
	Slot        int             `json:"slot"`
	Incarnation int64           `json:"incarnation"`
	RunID       string          `json:"run_id"` // of the first run of its workflow
	State       lifecycle.State `json:"state"`
	PID         int             `json:"pid,omitempty"`
	Announce
}

// ReasonCode is why a worker is out of service: the label under which workers are counted. "" is a worker in service or
// starting.
type ReasonCode string

// Reason codes.
const (
	ReasonBackoff        ReasonCode = "backoff"     // it crashed and waits before the next start
	ReasonGaveUp         ReasonCode = "give_up"     // it failed, too often in a row, or with recovery.restart = "never"
	ReasonBreaker        ReasonCode = "breaker"     // too many starts of its pool failed
	ReasonStartRate      ReasonCode = "start_rate"  // start.rate_per_second
	ReasonNoCapacity     ReasonCode = "no_capacity" // no host has free capacity
	ReasonDegraded       ReasonCode = "degraded"    // a probe failed, or a lease ended with an error
	ReasonSuspended      ReasonCode = "suspended"   // by an operator
	ReasonStopped        ReasonCode = "stopped"     // by an operator
	ReasonMemoryPressure ReasonCode = "pressure"    // its host is short of memory
)

// ReasonCodes lists all reason codes.
func ReasonCodes() []ReasonCode {
	return []ReasonCode{ReasonBackoff, ReasonGaveUp, ReasonBreaker, ReasonStartRate, ReasonNoCapacity, ReasonDegraded,
		ReasonSuspended, ReasonStopped, ReasonMemoryPressure}
}

// ScaledToZero reports whether the pool has no worker that could serve because nobody needs one: demand starts one.
func (s PoolStatus) ScaledToZero() bool {
	if s.Scale == nil || s.Stopping || s.Ended {
		return false
	}
	return !slices.ContainsFunc(s.Workers,
		func(w RosterEntry) bool { return !w.Gone && !w.Removing && w.Endpoint != "" && w.State.InService() })
}

// Endpoints are the endpoints of the workers' gateways, each once.
func (s PoolStatus) Endpoints() (endpoints []string) {
	for _, w := range s.Workers {
		if w.Endpoint != "" && !slices.Contains(endpoints, w.Endpoint) {
			endpoints = append(endpoints, w.Endpoint)
		}
	}
	return endpoints
}

// PressureStatus is a host's memory pressure: medium, high or critical.
type PressureStatus struct {
	Host   string `json:"host"`
	Level  string `json:"level"`
	Reason string `json:"reason"`
}

// SessionStoreClaim reports that a host wants to store the pool's sessions where no other host can read them. The pool
// records the first such host as PoolStatus.SessionsHost, for as long as that host has workers of the pool.
type SessionStoreClaim struct {
	Host string `json:"host"`
}
