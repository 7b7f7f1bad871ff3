package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// hostTimeout bounds the question to one host's workflow, which nobody answers while no agent runs workflows.
const hostTimeout = 5 * time.Second

// maxNamed bounds the workers that an error names.
const maxNamed = 10

// hostFacts are a host with what its workflow says of it, or why that is unknown.
type hostFacts struct {
	tempool.Host
	status    api.HostStatus
	statusErr error
}

// hosts lists the hosts, and asks the workflow of each.
func (a *app) hosts(ctx context.Context, cp controlPlane) ([]hostFacts, error) {
	found, err := send(ctx, a, cp.Hosts)
	hosts := make([]hostFacts, len(found))
	sleep.Each(len(found), concurrentExaminations, func(i int) {
		request, cancel := context.WithTimeout(ctx, min(hostTimeout, a.timeout))
		defer cancel()
		hosts[i].Host = found[i]
		hosts[i].status, hosts[i].statusErr = cp.HostStatus(request, found[i].ID)
	})
	return hosts, err
}

func (a *app) hostsCommand() *cobra.Command {
	c := a.controlPlaneCommand(withNames(&cobra.Command{
		Use:   "hosts",
		Short: "Show the hosts and their agents",
		Long: `Show the hosts and their agents: state, version, epoch, labels, processes of their capacity, what the
processes use, and the pools they are of. Agents report all of this with their heartbeats, every few seconds.

up        its agent heartbeats
suspect   its agent is silent; its workers move soon
lost      its agent was silent for too long; its workers have moved
left      its agent was stopped
keeping   its agent was stopped, and its processes wait for the next one
draining  it takes no new workers, see tempool hosts drain`,
		Example: `  tempool hosts
  tempool hosts -o json | jq '.[] | select(.state != "up") | .host'`,
	}), func(ctx context.Context, cp controlPlane, _ []string) error {
		hosts, err := a.hosts(ctx, cp)
		if err != nil {
			return err
		}
		rows := []hostRow{}
		var unknown error
		for _, h := range hosts {
			rows = append(rows, newHostRow(h))
			if h.statusErr != nil && unknown == nil {
				unknown = api.Errorf(api.CodeUnavailable, "the state of host %s is unknown: %w", h.ID, h.statusErr)
			}
		}
		err = a.printResult(rows, func(text *strings.Builder) {
			tableOf(text, []string{"HOST", "STATE", "EPOCH", "AGE", "LABELS", "PROCESSES", "MEMORY", "CPU %", "HEARTBEAT",
				"VERSION", "POOLS"}, rows, a.hostCells)
		})
		return cmp.Or(err, unknown)
	})
	c.AddCommand(a.drainHostCommand(), a.undrainHostCommand())
	return c
}

func (a *app) drainHostCommand() *cobra.Command {
	var reason string
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "drain HOST",
		Short: "Keep new workers from a host, and move those that it has",
		Long: `Keep new workers from a host, also after a restart of its agent, and restart those that it has, which then
start on other hosts: at most rotation.max_unavailable of a pool at a time, and with rotation.surge each process is
replaced only when the next one is ready. A worker for which no other host has capacity waits without a process.`,
		Example: `  tempool hosts drain web-1 --reason "new kernel"`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		host := args[0]
		moved, err := send(ctx, a, func(ctx context.Context) ([]tempool.Moved, error) {
			return cp.DrainHost(ctx, host, reasonWithOperator(reason))
		})
		if err != nil {
			return err
		}
		pools := plural(len(moved), "pool")
		if wait.skip {
			return a.printMessage(moved, "host %s takes no new workers, and those of %s move; run tempool hosts to follow",
				host, pools)
		}
		if err := a.awaitNoProcess(ctx, cp, host, wait.limit); err != nil {
			return err
		}
		return a.printMessage(moved, "host %s is drained: the workers of %s have moved", host, pools)
	})
	c.Flags().StringVar(&reason, "reason", "", "reason to record in the workers' histories")
	wait.flags(c, defaultRolloutWait, "until the workers have moved")
	return c
}

// awaitNoProcess waits until the agent of a host reports that no process is left there, with a heartbeat of its own
// after the call: a process may have been starting.
func (a *app) awaitNoProcess(ctx context.Context, cp controlPlane, host string, limit time.Duration) error {
	var first time.Time
	var left []string
	return a.await(ctx, limit, func(ctx context.Context) (bool, error) {
		hosts, err := cp.Hosts(ctx)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(hosts, func(h tempool.Host) bool { return h.ID == host })
		if i < 0 || hosts[i].HeardAt.IsZero() { // that nothing was heard of its agent is not that it has none
			status, _ := cp.HostStatus(ctx, host)
			return status.State == api.HostLeft || status.State == api.HostLost, nil
		}
		left = nil
		for _, p := range hosts[i].Heartbeat.Processes {
			left = append(left, p.Worker)
		}
		a.showProgress(fmt.Sprintf("host %s: processes of %d workers are left", host, len(left)))
		if first.IsZero() {
			first = hosts[i].HeardAt
		}
		return len(left) == 0 && hosts[i].HeardAt.After(first), nil
	}, func() string {
		if len(left) == 0 {
			return fmt.Sprintf("host %s takes no new workers, but after %s its agent has not reported that no process is left; "+
				"tempool hosts shows its state", host, formatDuration(limit))
		}
		return fmt.Sprintf("host %s takes no new workers, but still has processes of %d after %s (%s); tempool ps says why, "+
			"and draining it again moves what is left", host, len(left), formatDuration(limit),
			strings.Join(left[:min(len(left), maxNamed)], ", "))
	})
}

func (a *app) undrainHostCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:     "undrain HOST",
		Short:   "Let a host have new workers again",
		Example: `  tempool hosts undrain web-1`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		request, cancel := a.request(ctx)
		defer cancel()
		if err := cp.UndrainHost(request, args[0]); err != nil {
			return err
		}
		return a.printMessage(map[string]string{"host": args[0]}, "host %s takes new workers again", args[0])
	})
}

// hostRow is one host in tempool hosts.
type hostRow struct {
	api.HostStatus
	Processes   int              `json:"processes"`
	MemoryBytes int64            `json:"memory_bytes"` // of the processes
	CPUPercent  float64          `json:"cpu_percent"`  // of the processes; 100 is one core
	Pools       map[string]int   `json:"pools"`        // the number of processes by pool
	HeardAt     time.Time        `json:"heard_at,omitzero"`
	Agent       *api.AgentReport `json:"agent,omitempty"`
	Error       string           `json:"error,omitempty"` // why the state is unknown
}

// newHostRow is the row of a host; without an answer of its workflow, as far as its agent has reported.
func newHostRow(h hostFacts) hostRow {
	row := hostRow{HostStatus: h.status, Processes: len(h.Heartbeat.Processes), HeardAt: h.HeardAt,
		Agent: h.Heartbeat.Agent}
	row.MemoryBytes, row.CPUPercent, row.Pools = h.Heartbeat.Usage()
	if h.statusErr != nil {
		row.HostStatus, row.Error = api.HostStatus{Host: h.ID}, message(h.statusErr)
		if r := row.Agent; r != nil {
			row.Epoch, row.Labels, row.Capacity, row.Endpoint = r.Epoch, r.Labels, r.Capacity, r.Endpoint
		}
	}
	return row
}

func (a *app) hostCells(h hostRow) []string {
	age := func(at time.Time) string {
		if at.IsZero() {
			return dash
		}
		return formatDuration(a.now().Sub(at))
	}
	version := dash
	if h.Agent != nil {
		version = h.Agent.Version
	}
	var pools []string
	for _, pool := range slices.Sorted(maps.Keys(h.Pools)) {
		pools = append(pools, fmt.Sprint(pool, " ", h.Pools[pool]))
	}
	state := cmp.Or(string(h.State), "unknown: "+oneLine(h.Error, a.cellRunes()))
	if h.Draining != "" {
		state += ", draining"
	}
	return []string{h.Host, state, fmt.Sprint(h.Epoch), age(h.JoinedAt), strings.Join(h.Labels, ","),
		fmt.Sprintf("%d/%d", h.Processes, h.Capacity), formatBytes(h.MemoryBytes), fmt.Sprintf("%.0f", h.CPUPercent),
		age(h.HeardAt), oneLine(version, a.cellRunes()), orDash(oneLine(strings.Join(pools, ", "), a.cellRunes()))}
}
