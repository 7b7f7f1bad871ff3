package api

import "github.com/tempool/tempool/spec"

// PoolStart is the input of a pool's workflow.
type PoolStart struct {
	Pool string    `json:"pool"`
	Spec spec.Spec `json:"spec"`
	// Searchable says that the namespace has Tempool's search attributes, so that workflows may upsert them.
	Searchable bool `json:"searchable,omitempty"`
}

// PoolWorkers is what tempool ps and tempool pool status print: the roster with live states and metrics.
type PoolWorkers struct {
	Pool        string   `json:"pool"`
	Ended       bool     `json:"ended,omitempty"` // the other fields are then the last state
	Size        int      `json:"size"`
	Ready       int      `json:"ready"`
	SpecVersion int64    `json:"spec_version"`
	Rollout     *Rollout `json:"rollout,omitempty"`
	// Scale is the demand for a pool whose size follows it, else nil.
	Scale *ScaleStatus `json:"scale,omitempty"`
	// LastMinute is about the calls of the last minute at the hosts of the workers; nil if there were none, or if no host
	// reports them.
	LastMinute *Rates `json:"last_minute,omitempty"`
	// MCPSessions counts the sessions of MCP clients at the gateways of these hosts, Waiting the calls and clients that
	// wait for a worker there.
	MCPSessions int        `json:"mcp_sessions,omitempty"`
	Waiting     int        `json:"-"`
	Workers     []Worker   `json:"workers"`
	Status      PoolStatus `json:"-"` // what the pool itself says
}

// CountReady sets Ready to the number of workers in service.
func (v *PoolWorkers) CountReady() {
	v.Ready = 0
	for _, w := range v.Workers {
		if w.State.InService() {
			v.Ready++
		}
	}
}

// Rollout is a rolling restart in progress.
type Rollout struct {
	Reason  string `json:"reason"`
	Waiting []int  `json:"waiting"` // slots not yet restarted
	Current []int  `json:"current"` // slots restarting now
	Done    int    `json:"done"`
	// NoCapacity are slots that the rollout passed over because no host has free capacity for them; they start on the new
	// spec later.
	NoCapacity []int `json:"no_capacity,omitempty"`
	// Overdue are slots that the rollout passed over because they had not begun to restart in time, such as suspended
	// ones.
	Overdue []int `json:"overdue,omitempty"`
	// Halted is why the rollout stopped early; the next apply or restart replaces it.
	Halted string `json:"halted,omitempty"`
	// ByOperator says that an operator halted it, which is not a problem.
	ByOperator bool `json:"by_operator,omitempty"`
}

// Failed reports whether a rolling restart halted because a worker did not come back. It may be called with
// nil.
func (r *Rollout) Failed() bool { return r != nil && r.Halted != "" && !r.ByOperator }

// ApplyRequest sets the pool's spec; workers are restarted with it, at most rotation.max_unavailable at a time.
type ApplyRequest struct {
	Spec spec.Spec `json:"spec"`
	// IfVersion is the version that the present spec must have, else the request fails with CodeVersionConflict; 0 is any.
	// A new size or a new [scale] section alone makes no new version.
	IfVersion int64 `json:"if_version,omitempty"`
	// Reason and By appear in the reason of the rollout, in the histories of the workers that it restarts, and in the
	// event of a change of size.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// ApplyResult is the spec's version; versions count from 1. Changed says that a rollout begins: of a new spec, or a
// halted one of the same spec again.
type ApplyResult struct {
	SpecVersion int64 `json:"spec_version"`
	Changed     bool  `json:"changed"`
}

// RestartRequest restarts one slot, or all of them in a rolling restart if Worker is nil.
type RestartRequest struct {
	Worker *int   `json:"worker,omitempty"`
	Host   string `json:"host,omitempty"` // only the workers on this host
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// RestartResult lists the slots that will restart.
type RestartResult struct {
	Workers []int `json:"workers"`
}

// PoolStopResult is the number of workers that will end; the pool's workflow completes after the last of them.
type PoolStopResult struct {
	Stopping int `json:"stopping"`
}
