package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
)

func (a *app) reportCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "report [POOL]",
		Short: "Tell how a pool, or each pool, fares, what is wrong, and what to do",
		Long: `Tell how a pool, or each pool, fares: an overview, the health of its workers, what they use and have done, what is wrong, and
what to do about it, in sentences. With -o json the same for programs.`,
		Example: `  ctl report
  ctl report python
  ctl report python -o json | jq -r '.recommendations[]'`,
		Args:              atMostOne(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		if len(args) == 1 {
			report, err := a.poolReport(ctx, cp, args[0])
			if err != nil {
				return err
			}
			return a.printResult(report, func(w io.Writer) error { return writeReport(w, report) })
		}
		reports, failed := a.allReports(ctx, cp)
		if len(reports) > 0 || failed == nil {
			if err := a.printResult(reports, func(w io.Writer) error { return writeReports(w, reports) }); err != nil {
				return err
			}
		}
		return failed
	})
}

func (a *app) allReports(ctx context.Context, cp controlPlane) ([]policy.Report, error) {
	names, err := a.poolNames(ctx, cp)
	if err != nil {
		return nil, err
	}
	found := make([]*policy.Report, len(names))
	failures := make([]error, len(names))
	a.forEachPool(names, func(i int, name string) {
		report, err := a.poolReport(ctx, cp, name)
		switch {
		case err == nil:
			found[i] = &report
		case !errors.Is(err, api.ErrPoolNotFound): // one that ended meanwhile is no failure
			failures[i] = err
		}
	})
	reports := []policy.Report{}
	for _, report := range found {
		if report != nil {
			reports = append(reports, *report)
		}
	}
	return reports, errors.Join(failures...)
}

// poolReport asks a pool, and all its workers, how they fare.
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
	return policy.Reported(reportFacts(status, view, time.Now())), nil
}

// reportFacts puts what the pool knows and what its workers say together.
func reportFacts(status api.PoolStatus, view api.PoolWorkers, now time.Time) policy.PoolFacts {
	facts := policy.PoolFacts{
		Pool: view.Pool, Size: view.Size, SpecVersion: view.SpecVersion, Stopping: status.Stopping, Held: status.Held,
		MaxMemoryBytes: int64(status.Spec.Rotation.MaxMemory), At: now.UTC(),
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
		Worker: w.Worker, State: w.State, Health: w.Health, Since: w.Since, Reason: w.Reason, Host: w.Host, Resting: resting, Unasked: w.Error,
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
	f.OpenFiles, f.Threads, f.Uptime = w.OpenFiles, w.Threads, seconds(w.UptimeS)
	f.Restarts, f.Rotations, f.ConsecutiveFailures = w.RestartsByReason, w.RotationsByReason, w.ConsecutiveFailures
	addRotations(&f, w)
	return f
}

// addRotations says how the worker's replacements stand.
func addRotations(f *policy.WorkerFacts, w api.Worker) {
	if r := w.Rotation; r != nil {
		f.Replacing = r.Reason
	}
	if last := w.LastRotation; last != nil && last.Incarnation == w.Incarnation {
		f.Unreplaced = last.Failed
		if last.Observed {
			f.Observed = last.Reason
		}
	}
}

func writeReports(w io.Writer, reports []policy.Report) error {
	if len(reports) == 0 {
		_, err := fmt.Fprintln(w, "No pool is running.")
		return err
	}
	for i, report := range reports {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := writeReport(w, report); err != nil {
			return err
		}
	}
	return nil
}

// writeReport is what ctl report prints of one pool.
func writeReport(w io.Writer, r policy.Report) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n", r.Overview.Summary)
	fmt.Fprintf(&text, "Spec version %d%s; %d leased.\n", r.Overview.SpecVersion, formatHosts(r.Overview.Hosts), r.Overview.Leased)
	fmt.Fprintln(&text, "\nHealth")
	if err := table(&text, []string{"WORKER", "STATE", "FOR", "HEALTH", "GRADE", "SCORE", "WHY"}, healthRows(r.Health)); err != nil {
		return err
	}
	if u := r.Resources; u != nil {
		fmt.Fprintf(&text, "\nResources\nMemory %s now, %s at the peaks; processor %.1f %%; %s; %s.\n",
			formatBytes(u.MemoryBytes), formatBytes(u.PeakMemoryBytes), u.CPUPercent, plural(u.OpenFiles, "open file"), plural(u.Threads, "thread"))
		if u.Largest != "" {
			fmt.Fprintf(&text, "The largest is %s with %s.\n", u.Largest, formatBytes(u.LargestBytes))
		}
	}
	if p := r.Performance; p != nil {
		fmt.Fprintf(&text, "\nPerformance\n%d requests, %d failed (%.1f %%), %s on average.\n", p.Requests, p.Failed, 100*p.FailedShare, formatDuration(milliseconds(p.AvgCallMS)))
		if p.Slowest != "" {
			fmt.Fprintf(&text, "The slowest is %s with %s.\n", p.Slowest, formatDuration(milliseconds(p.SlowestMS)))
		}
		fmt.Fprintf(&text, "Restarts: %s. Rotations: %s.\n", formatCauses(p.Restarts), formatCauses(p.Rotations))
	}
	fmt.Fprintln(&text, "\nAlerts")
	if len(r.Alerts) == 0 {
		fmt.Fprintln(&text, "None.")
	}
	for _, alert := range r.Alerts {
		about := r.Pool
		if alert.Worker != "" {
			about = alert.Worker
		}
		fmt.Fprintf(&text, "%s  %s: %s\n", alert.Severity, about, alert.Text)
	}
	fmt.Fprintln(&text, "\nRecommendations")
	for _, advice := range r.Recommendations {
		fmt.Fprintf(&text, "- %s\n", advice)
	}
	_, err := io.WriteString(w, text.String())
	return err
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

// formatCauses lists how often each cause was, or says that there was none.
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
