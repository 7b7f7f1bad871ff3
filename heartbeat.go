package tempool

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// concurrentQueries bounds how many workers or hosts are queried at the same time.
const concurrentQueries = 16

// HostHeartbeat is what the agent of a host last reported of its ready processes; nothing if the host has no agent.
// What it points to is shared with other callers: do not change it.
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
		if activity.GetActivityType().GetName() != api.ActivityHostLiveness || activity.GetHeartbeatDetails() == nil ||
			activity.GetLastHeartbeatTime().AsTime().Before(at) { // of an agent before, which was killed
			continue
		}
		at = activity.GetLastHeartbeatTime().AsTime()
		if v, err = c.beats.decoded(hostID, at, func() (v api.HostHeartbeat, err error) {
			err = c.converter.FromPayloads(activity.GetHeartbeatDetails(), &v)
			return v, err
		}); err != nil {
			return v, at, c.fromTemporal(err, "read the heartbeat of host "+hostID)
		}
	}
	return v, at, nil
}

// beats remember the newest heartbeat of each host: views are refreshed more often than agents heartbeat, and with a
// thousand workers to decode it is a quarter of what a refresh costs. The zero value is ready.
type beats struct {
	mu sync.Mutex
	of map[string]beat
}

type beat struct {
	api.HostHeartbeat
	at, used time.Time // when Temporal got it, and when it was last asked for
}

// beatKept is how long a heartbeat is kept that nobody asks for.
const beatKept = time.Minute

// decoded is the heartbeat that Temporal got from a host at a time.
func (b *beats) decoded(hostID string, at time.Time,
	decode func() (api.HostHeartbeat, error)) (api.HostHeartbeat, error) {
	b.mu.Lock()
	one, known := b.of[hostID]
	b.mu.Unlock()
	if !known || !one.at.Equal(at) || at.Unix() <= 0 { // a server that does not say when
		v, err := decode()
		if err != nil {
			return v, err
		}
		one = beat{HostHeartbeat: v, at: at}
	}
	one.used = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[string]beat{}
	}
	maps.DeleteFunc(b.of, func(_ string, old beat) bool { return one.used.Sub(old.used) > beatKept })
	b.of[hostID] = one
	v := one.HostHeartbeat
	v.Processes = slices.Clone(v.Processes)
	return v, nil
}

// reports are what the hosts of a pool's workers last reported. A host that cannot be described reports nothing.
func (c *Client) reports(ctx context.Context, s api.PoolStatus) (all Reports) {
	hosts := hostsOf(s)
	each := make([]api.HostHeartbeat, len(hosts))
	sleep.Each(len(hosts), concurrentQueries, func(i int) {
		each[i], _ = c.HostHeartbeat(ctx, hosts[i]) // figures that are missing are as of the last checkpoint
	})
	for i, host := range hosts {
		all.Add(host, each[i])
	}
	return all
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

// Reports are what hosts last reported, and among it their processes by worker. The zero value has none.
type Reports struct {
	hosts     map[string]api.HostHeartbeat
	Processes map[string]api.ProcessReport
}

// Add adds the report of a host.
func (r *Reports) Add(hostID string, heartbeat api.HostHeartbeat) {
	if r.hosts == nil {
		r.hosts, r.Processes = map[string]api.HostHeartbeat{}, map[string]api.ProcessReport{}
	}
	r.hosts[hostID] = heartbeat
	for _, p := range heartbeat.Processes {
		if p.Incarnation >= r.Processes[p.Worker].Incarnation { // a host that the worker has left reports the older one
			r.Processes[p.Worker] = p
		}
	}
}

// lastMinute adds up what the hosts of a pool's workers report of its calls; nil if none does.
func (r Reports) lastMinute(status api.PoolStatus) *api.Rates {
	all := api.Figures{}
	for _, host := range hostsOf(status) {
		all.Add(r.hosts[host].Figures[status.Pool], true)
	}
	if all.Seconds == 0 {
		return nil
	}
	rates := all.Rates()
	return &rates
}
