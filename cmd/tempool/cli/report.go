package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/policy"
)

func (a *app) reportCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "report [POOL]",
		Short: "Show pool health, problems and fixes",
		Long: `Show a report on a pool, or on each pool: an overview, the health, resource usage and performance of its workers, alerts, and
recommendations. With -o json the report is an object, or a list of them without POOL.`,
		Example: `  tempool report
  tempool report python
  tempool report python -o json | jq -r '.recommendations[]'`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		return printPools(ctx, a, cp, args, poolQuery[policy.Report]{get: pool.Report, write: writeReports})
	})
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
	fmt.Fprintf(text, "Spec version %d%s; %d leased.\n", r.Overview.SpecVersion, formatHosts(r.Overview.Hosts),
		r.Overview.Leased)
	fmt.Fprintln(text, "\nHealth")
	tableOf(text, []string{"WORKER", "STATE", "FOR", "HEALTH", "GRADE", "SCORE", "MEMORY", "CPU %", "UPTIME", "REASON"},
		r.Health, healthRow)
	if u := r.Resources; u != nil {
		fmt.Fprintf(text, "\nResources\nMemory %s now, %s at peak; CPU %.1f %%; %s; %s.\n",
			formatBytes(u.MemoryBytes), formatBytes(u.PeakMemoryBytes), u.CPUPercent, plural(u.OpenFiles, "open file"),
			plural(u.Threads, "thread"))
		if n := u.Network; n != nil {
			fmt.Fprintf(text, "Network: %s received and %s sent by %s.\n", format.Count(n.ReceivedBytes),
				format.Count(n.SentBytes), plural(n.Measured, "worker"))
		}
		if u.Largest != "" {
			fmt.Fprintf(text, "Largest: %s with %s.\n", u.Largest, formatBytes(u.LargestBytes))
		}
	}
	if p := r.Performance; p != nil {
		fmt.Fprintf(text, "\nPerformance\n%d requests, %d failed (%.1f %%), %s on average.\n", p.Requests, p.Failed,
			100*p.FailedShare, formatDuration(milliseconds(p.AvgCallMS)))
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

func healthRow(h policy.WorkerHealth) []string {
	score, memory, cpu, uptime := dash, dash, dash, dash
	if h.Score != nil {
		score = fmt.Sprintf("%.0f", *h.Score)
	}
	if h.MemoryBytes != nil && h.CPUPercent != nil && h.UptimeS != nil {
		memory, cpu, uptime = formatBytes(*h.MemoryBytes), fmt.Sprintf("%.1f",
			*h.CPUPercent), formatDuration(seconds(*h.UptimeS))
	}
	return []string{h.Worker, string(h.State), formatDuration(seconds(h.ForS)), orDash(string(h.Health)),
		orDash(string(h.Grade)), score,
		memory, cpu, uptime, oneLine(h.Reason, maxReasonRunes)}
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
