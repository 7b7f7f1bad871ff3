package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// maxReasonRunes is how many runes of a reason stand in a table; the whole of it is in pool status and in JSON.
const maxReasonRunes = 90

// table writes columns that line up, without blanks at the ends of lines.
func table(w io.Writer, header []string, rows [][]string) error {
	var text strings.Builder
	// A strings.Builder takes whatever it is given, so neither the lines nor the flush can fail.
	aligned := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(aligned, strings.Join(row, "\t"))
	}
	_ = aligned.Flush()
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// writeWorkers is what ctl ps prints: one header over the workers of all views.
func writeWorkers(w io.Writer, views []api.PoolWorkers) error {
	ready, size := 0, 0
	var rows [][]string
	for _, view := range views {
		ready, size = ready+view.Ready, size+view.Size
		for _, worker := range view.Workers {
			rows = append(rows, workerRow(worker))
		}
	}
	title := fmt.Sprintf("Workers (%d/%d ready)", ready, size)
	if ended := endedTitle(views); ended != "" {
		title = ended
	}
	if plane := controlPlaneSummary(views); plane != "" {
		title += ", " + plane
	}
	if _, err := fmt.Fprintln(w, title); err != nil {
		return err
	}
	return table(w, []string{"ID", "STATE", "REQUESTS", "MEMORY", "UPTIME", "AVG CALL", "INCARNATION", "HOST", "PID", "LEASE HOLDER", "WHY"}, rows)
}

// endedTitle says that the one pool asked for has ended; "" for one that runs.
func endedTitle(views []api.PoolWorkers) string {
	if len(views) != 1 || !views[0].Ended {
		return ""
	}
	return fmt.Sprintf("Pool %s has ended; this is how it stood then", views[0].Pool)
}

func workerRow(w api.Worker) []string {
	holder := dash
	if w.Lease != nil {
		holder = w.Lease.Holder
	}
	return []string{
		w.Worker, string(w.State), fmt.Sprint(w.RequestsServed), formatBytes(w.CurrentMemoryBytes), formatDuration(seconds(w.UptimeS)),
		formatDuration(milliseconds(w.AvgCallTimeMS)), fmt.Sprint(w.Incarnation), orDash(w.Host), formatCount(w.PID), oneLine(holder, 40), oneLine(reasonOutOfService(w), maxReasonRunes),
	}
}

// reasonOutOfService says what keeps a worker out of service, or that it could not be asked; "" for one that serves.
func reasonOutOfService(w api.Worker) string {
	switch {
	case w.Error != "":
		return "not asked, this is what the pool last heard: " + w.Error
	case inService(w.State):
		return ""
	}
	return w.Reason
}

// inService reports whether a worker in this state is in service.
func inService(s lifecycle.State) bool { return s == lifecycle.Ready || s == lifecycle.Busy }

// writeStats is what ctl workers stats prints: what each worker uses and has done.
func writeStats(w io.Writer, views []api.PoolWorkers) error {
	var rows [][]string
	for _, view := range views {
		for _, worker := range view.Workers {
			rows = append(rows, statsRow(worker))
		}
	}
	if ended := endedTitle(views); ended != "" {
		if _, err := fmt.Fprintln(w, ended); err != nil {
			return err
		}
	}
	return table(w, []string{"ID", "STATE", "MEMORY", "PEAK", "CPU %", "FILES", "THREADS", "REQUESTS", "FAILED",
		"LEASES GRANTED", "REFUSED", "RESTARTS", "FAILURES IN A ROW", "LIMITS"}, rows)
}

func statsRow(w api.Worker) []string {
	return []string{
		w.Worker, string(w.State), formatBytes(w.CurrentMemoryBytes), formatBytes(w.PeakMemoryBytes), fmt.Sprintf("%.1f", w.CPUPercent),
		formatCount(w.OpenFiles), formatCount(w.Threads), fmt.Sprint(w.RequestsServed), fmt.Sprint(w.RequestsFailed),
		fmt.Sprint(w.LeasesGranted), fmt.Sprint(w.LeasesRefused), fmt.Sprint(w.Restarts), fmt.Sprint(w.ConsecutiveFailures),
		limitsCell(w),
	}
}

// limitsCell is by which means each limit is in force, and how much of memory and CPU is allowed.
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

// writeStatus is what ctl pool status prints: the pool, its workers, and the whole reason of each that does not serve.
func writeStatus(w io.Writer, view api.PoolWorkers) error {
	facts := [][]string{{"Spec version", fmt.Sprint(view.SpecVersion)}}
	if view.Rollout != nil {
		facts = append(facts, []string{"Rollout", oneLine(rolloutSummary(view.Rollout), 2*maxReasonRunes)})
	}
	if err := table(w, []string{"Pool", view.Pool}, facts); err != nil {
		return err
	}
	if err := writeWorkers(w, []api.PoolWorkers{view}); err != nil {
		return err
	}
	for _, worker := range view.Workers {
		if reason := reasonOutOfService(worker); reason != "" {
			if _, err := fmt.Fprintf(w, "\n%s %s: %s\n", worker.Worker, worker.State, indentLines(reason)); err != nil {
				return err
			}
		}
	}
	return nil
}

// indentLines keeps the lines of a log tail apart from what follows.
func indentLines(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// rolloutSummary says in one line how far a rolling restart is.
func rolloutSummary(r *api.Rollout) string {
	text := fmt.Sprintf("%s: %d done, restarting %v, waiting %v", r.Reason, r.Done, r.Current, r.Waiting)
	if r.Halted != "" {
		text += "; " + r.Halted
	}
	return text
}

// writePools is what ctl pool list prints.
func writePools(w io.Writer, pools []poolSummary) error {
	var rows [][]string
	for _, p := range pools {
		note := p.Error
		switch {
		case note != "":
		case p.Stopping:
			note = "stopping"
		case p.Rollout != nil:
			note = rolloutSummary(p.Rollout)
		}
		rows = append(rows, []string{p.Pool, fmt.Sprintf("%d/%d", p.Ready, p.Size), fmt.Sprint(p.SpecVersion), oneLine(note, maxReasonRunes)})
	}
	return table(w, []string{"POOL", "READY", "SPEC VERSION", "NOTE"}, rows)
}

// historyGapLine marks a gap in a worker's history.
const historyGapLine = "… transitions are missing here: a worker keeps its newest 100, and older runs are read as far as they are retained"

// writeHistory is what ctl history prints, oldest first; gaps are indexes before which transitions are missing.
func writeHistory(w io.Writer, transitions []lifecycle.Transition, gaps []int) error {
	missing := map[int]bool{}
	for _, index := range gaps {
		missing[index] = true
	}
	header := []string{"WHEN", "FROM", "EVENT", "TO", "AFTER", "WHY"}
	// A marker is no row, so it is put between the lines of the aligned table.
	var rows [][]string
	for _, t := range transitions {
		rows = append(rows, []string{
			t.Timestamp.UTC().Format(time.RFC3339), string(t.From), string(t.Event), string(t.To),
			formatDuration(time.Duration(t.DurationMS) * time.Millisecond), oneLine(t.Reason, maxReasonRunes),
		})
	}
	var aligned strings.Builder
	if err := table(&aligned, header, rows); err != nil {
		return err
	}
	for i, line := range strings.SplitAfter(aligned.String(), "\n") {
		if missing[i-1] {
			line = historyGapLine + "\n" + line
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

// writeLease is what ctl checkout prints.
func writeLease(w io.Writer, lease *api.Lease, now time.Time) error {
	rows := [][]string{
		{"Worker", lease.Worker},
		{"Holder", lease.Holder},
		{"Host", orDash(lease.Host)},
		{"Endpoint", orDash(lease.Endpoint)},
	}
	if lease.Address != "" {
		rows = append(rows, []string{"Address", lease.Address})
	}
	if lease.Session != "" {
		rows = append(rows, []string{"Session", lease.Session})
	}
	rows = append(rows,
		[]string{"Expires", fmt.Sprintf("%s (in %s)", lease.ExpiresAt.UTC().Format(time.RFC3339), formatDuration(lease.ExpiresAt.Sub(now)))},
		[]string{"Give back", "ctl checkin " + lease.ID})
	return table(w, []string{"Lease", lease.ID}, rows)
}
