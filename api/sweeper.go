package api

import "time"

// The sweeper notices workflows that ended without a word: terminated, timed out, failed or cancelled by hand. One of it runs in a namespace.
const (
	WorkflowSweeper = "Sweeper"
	// SweeperWorkflowID and SweeperQueue have a part that no pool can be named.
	SweeperWorkflowID = "tempool/-/sweeper"
	SweeperQueue      = "tempool/-/sweeper"
	ActivitySweep     = "Sweep"

	// SignalWorkerClosed tells a pool that a worker's workflow has ended.
	SignalWorkerClosed = "worker-closed"
)

// SweepHeartbeatTimeout is how long the agent that sweeps may be silent before another one sweeps.
const SweepHeartbeatTimeout = 12 * time.Second

// SweepProgress is the input of ActivitySweep, its heartbeat and its result: workflows that closed before After have been seen.
type SweepProgress struct {
	After time.Time `json:"after"`
}

// WorkerClosed says that the newest workflow of a slot has ended.
type WorkerClosed struct {
	Slot   int    `json:"slot"`
	RunID  string `json:"run_id"` // of the first run of that workflow
	Status string `json:"status"` // terminated, timed out, failed, cancelled or completed
}
