package worker

import "go.temporal.io/sdk/workflow"

// The sequence numbers of a worker's leases must never be used twice: a holder may still have the lease with that number. What a worker
// remembers may get lost: its workflow or its pool's may be terminated, reset, or started again. Time does not, so a worker's numbers begin
// with the Unix time in milliseconds at which its pool starts it, and no worker grants a lease each millisecond.

// nextSeq is the sequence number of the next lease. A run that was reset has forgotten the leases since, so it numbers by time.
func (l *leases) nextSeq() int64 {
	info := workflow.GetInfo(l.Ctx)
	if info.OriginalRunID != "" && info.OriginalRunID != info.WorkflowExecution.RunID {
		return max(l.LeaseSeq+1, l.Now().UnixMilli())
	}
	return l.LeaseSeq + 1
}
