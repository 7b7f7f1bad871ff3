package tempool

import (
	"context"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// concurrentQueries bounds how many workers or hosts are queried at the same time.
const concurrentQueries = 16

// HostHeartbeat is what the agent of a host last reported of its ready processes; nothing if the host has no agent.
func (c *Client) HostHeartbeat(ctx context.Context, hostID string) (api.HostHeartbeat, error) {
	heartbeat, _, err := c.heartbeat(ctx, hostID)
	return heartbeat, err
}

// heartbeat returns the newest heartbeat of a host, and when Temporal got it.
func (c *Client) heartbeat(ctx context.Context, hostID string) (v api.HostHeartbeat, at time.Time, err error) {
	description, err := c.temporal.DescribeWorkflowExecution(ctx, api.HostWorkflowID(hostID), "")
	if err != nil {
		return v, at, c.fromTemporal(err, "describe host "+hostID)
	}
	for _, activity := range description.GetPendingActivities() {
		if activity.GetActivityType().GetName() != api.ActivityHostLiveness || activity.GetHeartbeatDetails() == nil {
			continue
		}
		if err := c.converter.FromPayloads(activity.GetHeartbeatDetails(), &v); err != nil {
			return v, at, c.fromTemporal(err, "read the heartbeat of host "+hostID)
		}
		at = activity.GetLastHeartbeatTime().AsTime()
	}
	return v, at, nil
}

// reports are what the hosts of a pool's workers last reported, and of their processes by worker. A host that cannot be
// described reports nothing.
func (c *Client) reports(ctx context.Context, s api.PoolStatus) (map[string]api.ProcessReport, []api.HostHeartbeat) {
	var hosts []string
	for _, w := range s.Workers {
		if w.Host != "" && !slices.Contains(hosts, w.Host) {
			hosts = append(hosts, w.Host)
		}
	}
	heartbeats := make([]api.HostHeartbeat, len(hosts))
	sleep.Each(len(hosts), concurrentQueries, func(i int) {
		heartbeats[i], _ = c.HostHeartbeat(ctx, hosts[i]) // figures that are missing are as of the last checkpoint
	})
	reports := map[string]api.ProcessReport{}
	for _, host := range heartbeats {
		for _, v := range host.Processes {
			reports[v.Worker] = v
		}
	}
	return reports, heartbeats
}

// addHosts adds to the view of a pool what its hosts report of its clients.
func addHosts(view *api.PoolWorkers, hosts []api.HostHeartbeat) {
	view.LastMinute = lastMinute(view.Pool, hosts)
	for _, host := range hosts {
		view.MCPSessions += host.MCPSessions[view.Pool]
	}
}

// lastMinute adds up what hosts report of the calls of a pool; nil if none does.
func lastMinute(pool string, hosts []api.HostHeartbeat) *api.Rates {
	all := api.Figures{}
	for _, host := range hosts {
		all.Add(host.Figures[pool], true)
	}
	if all.Seconds == 0 {
		return nil
	}
	rates := all.Rates()
	return &rates
}
