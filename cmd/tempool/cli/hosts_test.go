package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func TestHostsShowsWhatAgentsReport(t *testing.T) {
	f := healthySetup(t)
	host := &f.hosts[0]
	host.HeardAt, host.Heartbeat.Agent.Version = noon.Add(-3*time.Second), "v1"
	host.Heartbeat.Processes = []api.ProcessReport{
		{Process: api.Process{Worker: "python/0"}, Sample: &api.Sample{MemoryBytes: 50 << 20, CPUPercent: 30}},
		{Process: api.Process{Worker: "python/1"}, Sample: &api.Sample{MemoryBytes: 14 << 20, CPUPercent: 12}},
		{Process: api.Process{Worker: "js/0"}},
	}
	f.hosts = append(f.hosts, tempool.Host{ID: "b"})
	require.Equal(t, `HOST  STATE  EPOCH  AGE   LABELS   PROCESSES  MEMORY    CPU %  HEARTBEAT  VERSION  POOLS
a     up     3      2h0m  default  3/10       64.0 MiB  42     3.0s       v1       js 1, python 2
b     lost   0      -              0/0        -         0      -          -        -
`, ctl(t, f, "hosts").out)
	require.Equal(t, "a\nb\n", ctl(t, f, "hosts", "-o", "name").out)
	rows := decode[[]hostRow](t, ctl(t, f, "hosts", "-o", "json"))
	require.Equal(t, map[string]int{"python": 2, "js": 1}, rows[0].Pools)

	processes := f.hosts[0].Heartbeat.Processes
	f.hosts[0].Heartbeat.Processes = nil
	f.heartbeat = func() { f.hosts[0].HeardAt = f.hosts[0].HeardAt.Add(time.Second) }
	for line, says := range map[string]string{
		"hosts drain a --reason kernel --no-wait": "host a takes no new workers, and those of 1 pool move",
		"hosts drain a":   "host a is drained: the workers of 1 pool have moved",
		"hosts undrain a": "host a takes new workers again",
	} {
		require.Contains(t, ctl(t, f, strings.Fields(line)...).out, says)
	}
	require.Contains(t, f.requests, "drain host a: "+reasonWithOperator("kernel"))
	require.Contains(t, f.requests, "undrain host a")
	f.hosts[0].Heartbeat.Processes = processes
	r := fail(t, f, "hosts", "drain", "a", "--wait-timeout", "50ms")
	require.Contains(t, r.err, "still has processes of 3 after 50ms (python/0, python/1, js/0)")
	f.hosts[0].Heartbeat.Processes, f.heartbeat = nil, func() {}
	fail(t, f, "hosts", "drain", "a", "--wait-timeout", "50ms")
	require.Contains(t, fail(t, f, "hosts", "drain", "nosuch").err, "no host nosuch")
	f.hosts[0].HeardAt = time.Time{} // its agent is silent, or it cannot be described
	r = fail(t, f, "hosts", "drain", "a", "--wait-timeout", "50ms")
	require.Contains(t, r.err, "after 50ms its agent has not reported that no process is left")
	require.Contains(t, ctl(t, f, "hosts", "drain", "b").out, "host b is drained", "it is lost")

	f.hostErr, f.hosts[0].Heartbeat.Processes = api.ErrUnavailable, processes
	r = fail(t, f, "hosts")
	require.Contains(t, r.out, "a     unknown: unavailable  3      -    default  3/10",
		"what the agent reports does not need its host's workflow")
	require.Contains(t, r.err, "the state of host a is unknown: unavailable")
}
