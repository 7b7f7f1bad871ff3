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

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

func (a *app) reportCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "report [POOL]",
		Short: "Show pool health, problems and fixes",
		Long: `Show a report on a pool, or on each pool: an overview, the health, resource usage and performance of its workers, alerts, and
recommendations. With -o json the report is an object, or a list of them without POOL.`,
		Example: `  ctl report
  ctl report python
  ctl report python -o json | jq -r '.recommendations[]'`,
		Args:              atMostOne(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		return printPools(ctx, a, cp, args, poolQuery[policy.Report]{get: a.poolReport, write: writeReports})
	})
}

// poolReport builds the report of a pool from the states of the pool and its workers.
func (a *app) poolReport(ctx context.Context, cp controlPlane, name string) (policy.Report, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	status, err := cp.Pool(name).Running(request)
	if err != nil {
		return policy.Report{}, err
	}
	view, err := cp.Pool(name).Workers(request)
	if err != nil {
		return policy.Report{}, err
	}
	return policy.NewReport(reportFacts(status, view, time.Now())), nil
}

// reportFacts joins the states of a pool and its workers.
func reportFacts(status api.PoolStatus, view api.PoolWorkers, now time.Time) policy.PoolFacts {
	facts := policy.PoolFacts{
		Pool: view.Pool, Size: view.Size, SpecVersion: view.SpecVersion, Stopping: status.Stopping, StartsPaused: status.StartsPaused,
		MaxMemoryBytes: max(0, int64(status.Spec.Rotation.MaxMemory)), AutoMaxMemory: status.Spec.Rotation.MaxMemory == spec.Auto, At: now.UTC(),
	}
	if s := status.Scale; s != nil {
		facts.FollowsDemand = true
		if s.Cause == string(policy.ScaledToMax) {
			facts.AboveMax = s.Reason
		}
	}
	if r := view.Rollout; r != nil {
		facts.Rollout, facts.Halted = fmt.Sprintf("%s, %d done and %d to go", r.Reason, r.Done, len(r.Waiting)+len(r.Current)), r.Halted
	}
	resting := map[string]bool{}
	for _, entry := range status.Workers {
		resting[api.WorkerName(status.Pool, entry.Slot)] = entry.Resting
	}
	for _, w := range view.Workers {
		facts.Workers = append(facts.Workers, workerFacts(w, resting[w.Worker]))
	}
	return facts
}

func workerFacts(w api.Worker, resting bool) policy.WorkerFacts {
	f := policy.WorkerFacts{
		Worker: w.Worker, State: w.State, Health: w.Health, Since: w.Since, Reason: w.Reason, Host: w.Host, Resting: resting, Unreachable: w.Error,
	}
	if w.Error != "" {
		return f
	}
	f.Measured, f.Grade, f.Score, f.Warnings = true, policy.Grade(w.Grade), w.Score, w.Warnings
	if w.Lease != nil {
		f.Holder = w.Lease.Holder
	}
	f.Requests, f.Failed, f.CallTime = w.RequestsServed, w.RequestsFailed, time.Duration(w.TotalCallTimeMS)*time.Millisecond
	f.MemoryBytes, f.PeakMemoryBytes, f.CPUPercent = w.CurrentMemoryBytes, w.PeakMemoryBytes, w.CPUPercent
	f.BaselineBytes, f.MaxMemoryBytes = w.BaselineBytes, w.MaxMemoryBytes
	f.OpenFiles, f.Threads, f.Uptime = w.OpenFiles, w.Threads, seconds(w.UptimeS)
	f.Ended = map[lifecycle.State]int64{}
	for outcome, n := range w.EndedByOutcome {
		f.Ended[lifecycle.State(outcome)] = n
	}
	f.Restarts, f.Rotations, f.ConsecutiveFailures = w.RestartsByReason, w.RotationsByReason, w.ConsecutiveFailures
	addRotations(&f, w)
	return f
}

// addRotations adds the state of the worker's replacements.
func addRotations(f *policy.WorkerFacts, w api.Worker) {
	if r := w.Rotation; r != nil {
		f.Replacing = r.Reason
	}
	if w.LastRotation != nil {
		f.Rotated = w.LastRotation.Reason
	}
	if last := w.LastRotation; last != nil && last.Incarnation == w.Incarnation {
		f.ReplacementFailed = last.Failed
		if last.Observed {
			f.Observed = last.Reason
		}
	}
}

func writeReports(text *strings.Builder, reports []policy.Report) {
	if len(reports) == 0 {
		fmt.Fprintln(text, "No pool is running.")
	}
	for i, report := range reports {
		if i > 0 {
			fmt.Fprintln(text)
		}
		writeReport(text, report)
	}
}

// writeReport writes the report of one pool.
func writeReport(text *strings.Builder, r policy.Report) {
	fmt.Fprintf(text, "%s\n", r.Overview.Summary)
	fmt.Fprintf(text, "Spec version %d%s; %d leased.\n", r.Overview.SpecVersion, formatHosts(r.Overview.Hosts), r.Overview.Leased)
	fmt.Fprintln(text, "\nHealth")
	table(text, []string{"WORKER", "STATE", "FOR", "HEALTH", "GRADE", "SCORE", "WHY"}, healthRows(r.Health))
	if u := r.Resources; u != nil {
		fmt.Fprintf(text, "\nResources\nMemory %s now, %s at peak; CPU %.1f %%; %s; %s.\n",
			formatBytes(u.MemoryBytes), formatBytes(u.PeakMemoryBytes), u.CPUPercent, plural(u.OpenFiles, "open file"), plural(u.Threads, "thread"))
		if u.Largest != "" {
			fmt.Fprintf(text, "Largest: %s with %s.\n", u.Largest, formatBytes(u.LargestBytes))
		}
	}
	if p := r.Performance; p != nil {
		fmt.Fprintf(text, "\nPerformance\n%d requests, %d failed (%.1f %%), %s on average.\n", p.Requests, p.Failed, 100*p.FailedShare, formatDuration(milliseconds(p.AvgCallMS)))
		if p.Slowest != "" {
			fmt.Fprintf(text, "Slowest: %s with %s.\n", p.Slowest, formatDuration(milliseconds(p.SlowestMS)))
		}
		fmt.Fprintf(text, "Restarts: %s. Rotations: %s.\n", formatCauses(p.Restarts), formatCauses(p.Rotations))
	}
	fmt.Fprintln(text, "\nAlerts")
	if len(r.Alerts) == 0 {
		fmt.Fprintln(text, "None.")
	}
	for _, alert := range r.Alerts {
		fmt.Fprintf(text, "%s  %s: %s\n", alert.Severity, cmp.Or(alert.Worker, r.Pool), alert.Text)
	}
	fmt.Fprintln(text, "\nRecommendations")
	for _, advice := range r.Recommendations {
		fmt.Fprintf(text, "- %s\n", advice)
	}
}

func healthRows(workers []policy.WorkerHealth) [][]string {
	var rows [][]string
	for _, h := range workers {
		score := dash
		if h.Score != nil {
			score = fmt.Sprintf("%.0f", *h.Score)
		}
		rows = append(rows, []string{h.Worker, string(h.State), formatDuration(seconds(h.ForS)), orDash(string(h.Health)), orDash(string(h.Grade)), score, oneLine(h.Why, maxReasonRunes)})
	}
	return rows
}

func formatHosts(hosts map[string]int) string {
	if len(hosts) == 0 {
		return ""
	}
	var each []string
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		each = append(each, fmt.Sprintf("%d on %s", hosts[host], host))
	}
	return ", " + strings.Join(each, ", ")
}

// formatCauses lists each cause with its count, or "none".
func formatCauses(counts map[string]int64) string {
	var each []string
	for _, cause := range slices.Sorted(maps.Keys(counts)) {
		each = append(each, fmt.Sprintf("%d %s", counts[cause], strings.ReplaceAll(cause, "_", " ")))
	}
	if len(each) == 0 {
		return "none"
	}
	return strings.Join(each, ", ")
}
