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
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// hostTimeout bounds the question to one host's workflow, which nobody answers while no agent runs workflows.
const hostTimeout = 5 * time.Second

// hostStatus is a host with what its workflow says of it, or why that is unknown.
type hostStatus struct {
	tempool.Host
	status    api.HostStatus
	statusErr error
}

// hosts lists the hosts, and asks the workflow of each.
func (a *app) hosts(ctx context.Context, cp controlPlane) ([]hostStatus, error) {
	found, err := send(ctx, a, cp.Hosts)
	hosts := make([]hostStatus, len(found))
	var all errgroup.Group
	all.SetLimit(concurrentExaminations)
	for i, host := range found {
		hosts[i].Host = host
		all.Go(func() error {
			request, cancel := context.WithTimeout(ctx, min(hostTimeout, a.timeout))
			defer cancel()
			hosts[i].status, hosts[i].statusErr = cp.HostStatus(request, host.ID)
			return nil
		})
	}
	_ = all.Wait() // a failure is the statusErr of its host
	return hosts, err
}

func (a *app) hostsCommand() *cobra.Command {
	return a.controlPlaneCommand(withNames(&cobra.Command{
		Use:   "hosts",
		Short: "Show the hosts and their agents",
		Long: `Show the hosts and their agents: state, version, epoch, labels, processes of their capacity, what the
processes use, and the pools they are of. Agents report all of this with their heartbeats, every few seconds.

up        its agent heartbeats
suspect   its agent is silent; its workers move soon
lost      its agent was silent for too long; its workers have moved
left      its agent was stopped
keeping   its agent was stopped, and its processes wait for the next one`,
		Example: `  tempool hosts
  tempool hosts -o json | jq '.[] | select(.state != "up") | .host'`,
	}), func(ctx context.Context, cp controlPlane, _ []string) error {
		hosts, err := a.hosts(ctx, cp)
		if err != nil {
			return err
		}
		rows := []hostRow{}
		for _, h := range hosts {
			rows = append(rows, newHostRow(h))
		}
		return a.printResult(rows, func(text *strings.Builder) {
			tableOf(text, []string{"HOST", "STATE", "EPOCH", "AGE", "LABELS", "PROCESSES", "MEMORY", "CPU %", "HEARTBEAT",
				"VERSION", "POOLS"}, rows, a.hostCells)
		})
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
func newHostRow(h hostStatus) hostRow {
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
	return []string{h.Host, state, fmt.Sprint(h.Epoch), age(h.JoinedAt), strings.Join(h.Labels, ","),
		fmt.Sprintf("%d/%d", h.Processes, h.Capacity), formatBytes(h.MemoryBytes), fmt.Sprintf("%.0f", h.CPUPercent),
		age(h.HeardAt), oneLine(version, a.cellRunes()), orDash(oneLine(strings.Join(pools, ", "), a.cellRunes()))}
}
