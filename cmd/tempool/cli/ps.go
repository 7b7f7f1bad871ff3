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
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/lifecycle"
)

func (a *app) psCommand() *cobra.Command {
	return a.controlPlaneCommand(withNames(&cobra.Command{
		Use:   "ps [POOL]",
		Short: "Show the workers of a pool, or of all pools",
		Long: `Show the workers of a pool, or of all pools: state, requests, memory, uptime, host and holder.

State and lease are what the worker itself answers. Of more than 64 workers, those in service are not asked: theirs
are what they last reported to their pool, as are those of one that does not answer within two seconds. Requests and
memory are those of the current process, as its host reported them seconds ago.

HOLDER is who has leased the worker, and with isolation.by = "key" the begin of the hash of the key that its process
serves, and for how long; for an MCP client with a process of its own it begins with the client. INCARNATION 7.12 is the twelfth process of incarnation 7.

The first line also shows the calls and errors a second in the last minute; for one pool also how long 95 of 100 calls
took, and waited.

REASON says why a worker is out of service; tempool pool status POOL shows the full reason.`,
		Example: `  tempool ps
  tempool ps python
  tempool ps python -o json | jq '.workers[] | select(.state != "ready")'`,
	}), func(ctx context.Context, cp controlPlane, args []string) error {
		return a.printRosters(ctx, cp, args)
	})
}

func (a *app) printRosters(ctx context.Context, cp controlPlane, args []string) error {
	views, err := poolOrAll(ctx, a, cp, args, pool.Roster)
	tempool.AskWorkers(ctx, views, stateOf(cp))
	return a.printPools(args, views, err, a.writeWorkers)
}

// stateOf asks workers of a control plane.
func stateOf(cp controlPlane) tempool.AskState {
	return func(ctx context.Context, pool string, slot int) (api.WorkerState, error) {
		return cp.Pool(pool).State(ctx, slot)
	}
}

func (a *app) statsCommand() *cobra.Command {
	return a.controlPlaneCommand(withNames(&cobra.Command{
		Use:   "stats [POOL]",
		Short: "Show resource usage and counters of workers",
		Long: `Show the resource usage of each worker (memory of its process tree, CPU, open files, threads; 100 % is
one core) and its counters over all incarnations: requests, leases, restarts. RECEIVED/SENT are the bytes of its
network, which are known only for a process with a network namespace of its own, such as a container.`,
		Example: `  tempool workers stats
  tempool workers stats python
  tempool workers stats python -o json | jq '.workers[] | {id, peak_memory_bytes}'`,
	}), func(ctx context.Context, cp controlPlane, args []string) error {
		views, err := poolOrAll(ctx, a, cp, args, pool.Workers)
		return a.printPools(args, views, err, writeStats)
	})
}

// writeWorkers writes the table of tempool ps, with one header for the workers of all pools.
func (a *app) writeWorkers(text *strings.Builder, views []api.PoolWorkers) {
	sessions := 0
	for _, view := range views {
		sessions += view.MCPSessions
	}
	title := []string{cmp.Or(endedTitle(views), "Workers ("+readyText(views)+")")}
	if sessions > 0 {
		title = append(title, plural(sessions, "MCP session"))
	}
	title = append(title, ratesSummary(views))
	fmt.Fprintln(text, strings.Join(slices.DeleteFunc(title, func(part string) bool { return part == "" }), ", "))
	tableOf(text, []string{"ID", "STATE", "REQUESTS", "MEMORY", "UPTIME", "AVG CALL", "INCARNATION", "HOST", "PID",
		"HOLDER", "REASON"}, workersOf(views), a.workerRow)
}

// readyText is "2/4 ready".
func readyText(views []api.PoolWorkers) string {
	ready, size := 0, 0
	for _, view := range views {
		ready, size = ready+view.Ready, size+view.Size
	}
	return fmt.Sprintf("%d/%d ready", ready, size)
}

// workersOf returns the workers of all pools.
func workersOf(views []api.PoolWorkers) (all []api.Worker) {
	for _, view := range views {
		all = append(all, view.Workers...)
	}
	return all
}

// endedTitle says that a single pool has stopped; it is empty for other views.
func endedTitle(views []api.PoolWorkers) string {
	if len(views) != 1 || !views[0].Ended {
		return ""
	}
	return fmt.Sprintf("Pool %s has stopped; this is its last state", views[0].Pool)
}

func (a *app) workerRow(w api.Worker) []string {
	pid := formatCount(w.PID)
	if w.State.Outcome() || w.State == lifecycle.Pending { // the process of that number has ended
		pid = dash
	}
	return []string{
		w.Worker, stateAndCalls(w), fmt.Sprint(w.RequestsServed), formatBytes(w.CurrentMemoryBytes),
		formatDuration(seconds(w.UptimeS)),
		formatDuration(milliseconds(w.AvgCallTimeMS)), incarnation(w), orDash(w.Host), pid,
		oneLine(orDash(holders(w, a.now())), 60),
		oneLine(w.ReasonOutOfService(), a.cellRunes()),
	}
}

// incarnation is a worker's incarnation, and after a point the number of a process that is not the first one of it.
func incarnation(w api.Worker) string {
	if w.Process > 1 {
		return fmt.Sprintf("%d.%d", w.Incarnation, w.Process)
	}
	return fmt.Sprint(w.Incarnation)
}

// holders is who has a worker leased, and whose its process is; "" for nobody's.
func holders(w api.Worker, now time.Time) string {
	var all []string
	if c := w.MCPClient; c != nil {
		all = append(all, fmt.Sprintf("MCP %s for %s", oneLine(c.Principal, 24), formatDuration(now.Sub(c.Since))))
	}
	if w.Lease != nil {
		all = append(all, w.Lease.Holder)
	}
	if w.Key != nil {
		all = append(all, fmt.Sprintf("key %s for %s", w.Key.Key, formatDuration(now.Sub(w.Key.Since))))
	}
	return strings.Join(all, ", ")
}

// stateAndCalls is a worker's state, and the calls in flight on it if there are any.
func stateAndCalls(w api.Worker) string {
	if w.InFlight == 0 {
		return string(w.State)
	}
	return string(w.State) + ", " + plural(w.InFlight, "call")
}

// writeStats writes the table of tempool workers stats.
func writeStats(text *strings.Builder, views []api.PoolWorkers) {
	if ended := endedTitle(views); ended != "" {
		fmt.Fprintln(text, ended)
	}
	workers := workersOf(views)
	tableOf(text, []string{"ID", "STATE", "MEMORY", "PEAK", "CPU %", "FILES", "THREADS", "RECEIVED/SENT", "REQUESTS",
		"FAILED", "CALLS/MIN",
		"LEASES GRANTED", "REFUSED", "RESTARTS", "FAILURES IN A ROW", "LIMITS"}, workers, statsRow)
	for _, w := range workers {
		if w.Watch != "" {
			fmt.Fprintf(text, "%s: %s\n", w.Worker, oneLine(w.Watch, maxWatchRunes))
		}
	}
}

// maxWatchRunes bounds the text of a prediction about a worker.
const maxWatchRunes = 200

func statsRow(w api.Worker) []string {
	network := dash
	if n := w.Network; n != nil {
		network = format.Count(n.ReceivedBytes) + "/" + format.Count(n.SentBytes)
	}
	return []string{
		w.Worker, string(w.State), formatBytes(w.CurrentMemoryBytes), formatBytes(w.PeakMemoryBytes),
		fmt.Sprintf("%.1f", w.CPUPercent),
		formatCount(w.OpenFiles), formatCount(w.Threads), network, fmt.Sprint(w.RequestsServed), fmt.Sprint(w.RequestsFailed),
		fmt.Sprintf("%.0f", w.CallsPerMinute),
		fmt.Sprint(w.LeasesGranted), fmt.Sprint(w.LeasesRefused), fmt.Sprint(w.Restarts), fmt.Sprint(w.ConsecutiveFailures),
		limitsCell(w),
	}
}

// limitsCell lists the mechanism that enforces each limit, and the values of the memory and CPU limits.
func limitsCell(w api.Worker) string {
	var parts []string
	for _, limit := range slices.Sorted(maps.Keys(w.Limits)) {
		part := limit + ":" + w.Limits[limit]
		switch {
		case limit == "memory" && w.MemoryLimitBytes > 0:
			part += "=" + strings.ReplaceAll(formatBytes(w.MemoryLimitBytes), " ", "")
		case limit == "cpu" && w.CPULimitCores > 0:
			part += fmt.Sprintf("=%.2f", w.CPULimitCores)
		}
		parts = append(parts, part)
	}
	return orDash(strings.Join(parts, " "))
}

// ratesSummary says how many calls of the last minute ended and failed in a second; for a single pool also how long 95
// of 100 took. It is empty if no host reports any.
func ratesSummary(views []api.PoolWorkers) string {
	calls, failing, known := 0.0, 0.0, false
	for _, view := range views {
		if r := view.LastMinute; r != nil {
			calls, failing, known = calls+r.CallsPerSecond, failing+r.Failing(), true
		}
	}
	if !known {
		return ""
	}
	text := format.Rate(calls) + " calls/s, " + format.Rate(failing) + " errors/s"
	if len(views) == 1 {
		r := views[0].LastMinute
		text += fmt.Sprintf(", p95 %s after waiting %s", format.Milliseconds(r.ServingMS.P95),
			format.Milliseconds(r.WaitingMS.P95))
	}
	return text
}

// lastMinute are the rows of tempool pool status about the calls of the last minute; none if no host reports any.
func lastMinute(view api.PoolWorkers) [][]string {
	r := view.LastMinute
	if r == nil {
		return nil
	}
	percentiles := func(p api.Percentiles) string {
		ms := format.Milliseconds
		return fmt.Sprintf("p50 %s, p95 %s, p99 %s", ms(p.P50), ms(p.P95), ms(p.P99))
	}
	rows := [][]string{
		{"Last minute", ratesSummary([]api.PoolWorkers{view}) + "; " + format.Rate(r.InFlight) + " in flight on average"},
		{"  Waiting", percentiles(r.WaitingMS) + "; at most " + plural(int(r.Queue), "call") + " at once"},
		{"  Serving", percentiles(r.ServingMS)},
	}
	for _, code := range slices.Sorted(maps.Keys(r.ErrorsPerSecond)) {
		rows = append(rows, []string{"  " + code, format.Rate(r.ErrorsPerSecond[code]) + " errors/s"})
	}
	if len(r.Processes) > 0 {
		rows = append(rows, []string{"  Processes", formatCauses(r.Processes)})
	}
	return rows
}
