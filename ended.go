package tempool

import (
	"context"

	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Temporal answers queries of a workflow that has ended with its last state, in which a worker may be ready. No workflow manages the process of
// such a worker any more, so it is shown as failed.

// workerState queries a worker. If its workflow has ended, Ended is set, and the rest is its last state, except that it has no process in service
// and no lease.
func (c *Client) workerState(ctx context.Context, workflowID string) (s api.WorkerState, err error) {
	ended, err := c.queryUnless(ctx, workflowID, api.QueryState, enums.QUERY_REJECT_CONDITION_NOT_OPEN, &s)
	if !ended {
		return s, err
	}
	if err = c.query(ctx, workflowID, api.QueryState, &s); err != nil {
		return s, err
	}
	s.Ended, s.Lease = true, nil
	if !s.State.Outcome() {
		s.Reason = "the workflow of this worker has ended while it was " + string(s.State)
		s.State, s.Health = lifecycle.Failed, lifecycle.Unknown
	}
	return s, nil
}

// ended is the status of a pool that has ended: no worker of its roster serves.
func ended(s api.PoolStatus) api.PoolStatus {
	s.Ended, s.Ready = true, 0
	for i := range s.Workers {
		if w := &s.Workers[i]; !w.State.Outcome() {
			w.Reason = "the pool has ended while this worker was " + string(w.State)
			w.State = lifecycle.Stopped
		}
	}
	return s
}
