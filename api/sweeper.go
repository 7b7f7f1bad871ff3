package api

// The sweeper finds workflows that ended without a report: terminated, timed out, failed, cancelled or deleted by hand.
// Each namespace has one.
const (
	WorkflowSweeper = "Sweeper"
	// SweeperWorkflowID and SweeperQueue contain a part that is not a valid pool name.
	SweeperWorkflowID = "tempool/-/sweeper"
	SweeperQueue      = "tempool/-/sweeper"
	ActivitySweep     = "Sweep"

	// SignalWorkerClosed reports to a pool that a worker's workflow has closed.
	SignalWorkerClosed = "worker-closed"
)

// WorkerClosed reports that the newest workflow of a slot has closed.
type WorkerClosed struct {
	Slot   int    `json:"slot"`
	RunID  string `json:"run_id"` // of the first run of that workflow
	Status string `json:"status"` // terminated, timed out, failed, cancelled or completed
}
