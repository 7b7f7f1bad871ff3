package tempool

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// recentPoll is the greatest age of a live agent's last poll: a poll waits up to a minute for work.
const recentPoll = 90 * time.Second

// Agents counts agents by what they poll, to explain why a pool does not start. Temporal forgets a poller only after
// minutes, so both numbers are hints and not proof.
type Agents struct {
	// Workflows counts the agents that run workflows; without one, pools do not react.
	Workflows int `json:"workflows"`
	// Placement counts the agents that accept new workers of one pool; a full agent does not.
	Placement int `json:"placement"`
}

// Agents counts the agents that polled within the last 90 s for workers of such a pool: by its placement ("" is the
// default label), and by its function if it has one.
func (c *Client) Agents(ctx context.Context, pool spec.Pool) (Agents, error) {
	workflows, err := c.pollers(ctx, api.TaskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return Agents{}, err
	}
	placement, err := c.pollers(ctx, api.StartQueue(pool), enums.TASK_QUEUE_TYPE_ACTIVITY)
	return Agents{Workflows: workflows, Placement: placement}, err
}

func (c *Client) pollers(ctx context.Context, queue string, kind enums.TaskQueueType) (int, error) {
	answer, err := c.temporal.DescribeTaskQueue(ctx, queue, kind)
	if err != nil {
		return 0, c.fromTemporal(err, "describe task queue "+queue)
	}
	recent := 0
	for _, poller := range answer.GetPollers() {
		if time.Since(poller.GetLastAccessTime().AsTime()) < recentPoll {
			recent++
		}
	}
	return recent, nil
}
