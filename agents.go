package tempool

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool/api"
)

// recentPoll is the greatest age of a live agent's last poll: a poll waits up to a minute for work.
const recentPoll = 90 * time.Second

// Agents counts the agents that polled for workflows within the last 90 s; without one, pools do not react. Temporal
// forgets a poller only after minutes, so the number is a hint and not proof.
func (c *Client) Agents(ctx context.Context) (int, error) {
	answer, err := c.temporal.DescribeTaskQueue(ctx, api.TaskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return 0, c.fromTemporal(err, "describe task queue "+api.TaskQueue)
	}
	recent := 0
	for _, poller := range answer.GetPollers() {
		if time.Since(poller.GetLastAccessTime().AsTime()) < recentPoll {
			recent++
		}
	}
	return recent, nil
}
