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

// heartbeats are what the hosts of a pool's workers last reported. A host that cannot be described reports nothing.
func (c *Client) heartbeats(ctx context.Context, s api.PoolStatus) map[string]api.HostHeartbeat {
	hosts := hostsOf(s)
	each := make([]api.HostHeartbeat, len(hosts))
	sleep.Each(len(hosts), concurrentQueries, func(i int) {
		each[i], _ = c.HostHeartbeat(ctx, hosts[i]) // figures that are missing are as of the last checkpoint
	})
	heartbeats := make(map[string]api.HostHeartbeat, len(hosts))
	for i, host := range hosts {
		heartbeats[host] = each[i]
	}
	return heartbeats
}

// hostsOf are the hosts of a pool's workers.
func hostsOf(s api.PoolStatus) (hosts []string) {
	for _, w := range s.Workers {
		if w.Host != "" && !slices.Contains(hosts, w.Host) {
			hosts = append(hosts, w.Host)
		}
	}
	return hosts
}

// ProcessesOf are the processes that hosts report, by worker.
func ProcessesOf(hosts map[string]api.HostHeartbeat) map[string]api.ProcessReport {
	reports := map[string]api.ProcessReport{}
	for _, host := range hosts {
		for _, v := range host.Processes {
			reports[v.Worker] = v
		}
	}
	return reports
}

// addClients adds to the view of a pool what its hosts report of its clients.
func addClients(view *api.PoolWorkers, hosts map[string]api.HostHeartbeat) {
	for _, host := range hosts {
		view.MCPSessions += host.MCPSessions[view.Pool]
	}
}

// LastMinuteOf adds up what the hosts of a pool's workers report of its calls; nil if none does.
func LastMinuteOf(status api.PoolStatus, hosts map[string]api.HostHeartbeat) *api.Rates {
	all := api.Figures{}
	for _, host := range hostsOf(status) {
		all.Add(hosts[host].Figures[status.Pool], true)
	}
	if all.Seconds == 0 {
		return nil
	}
	rates := all.Rates()
	return &rates
}
