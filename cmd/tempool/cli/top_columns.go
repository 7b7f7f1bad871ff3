package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
)

// topColumn is one column of tempool top.
type topColumn struct {
	title string
	width int // in cells; 0 for what the content needs; there is room for an arrow after the title
	cell  func(w api.Worker) string
	// order compares two workers; a sorted table starts with the least.
	order func(a, b api.Worker) int
}

// topColumns are the columns, in the order of their importance: a narrow screen cuts the last ones.
var topColumns = []topColumn{
	{"WORKER", 0, func(w api.Worker) string { return w.Worker }, byName},
	{"STATE", 9, func(w api.Worker) string { return string(w.State) }, byTrouble},
	{"CPU %", 6, func(w api.Worker) string { return fmt.Sprintf("%.1f", w.CPUPercent) },
		most(func(w api.Worker) float64 { return w.CPUPercent })},
	{"MEMORY", 9, func(w api.Worker) string { return formatBytes(w.CurrentMemoryBytes) },
		most(func(w api.Worker) int64 { return w.CurrentMemoryBytes })},
	{"CALLS/MIN", 10, func(w api.Worker) string { return fmt.Sprintf("%.0f", w.CallsPerMinute) },
		most(func(w api.Worker) float64 { return w.CallsPerMinute })},
	{"REQUESTS", 9, func(w api.Worker) string { return fmt.Sprint(w.RequestsServed) },
		most(func(w api.Worker) int64 { return w.RequestsServed })},
	{"AVG CALL", 9, func(w api.Worker) string { return formatDuration(milliseconds(w.AvgCallTimeMS)) },
		most(func(w api.Worker) float64 { return w.AvgCallTimeMS })},
	{"UPTIME", 7, func(w api.Worker) string { return formatDuration(seconds(w.UptimeS)) },
		most(func(w api.Worker) float64 { return w.UptimeS })},
	{"FAILS IN", 9, func(w api.Worker) string { return formatDuration(seconds(w.FailsInS)) }, most(soonest)},
	{"RESTARTS", 9, func(w api.Worker) string { return fmt.Sprint(w.Restarts) },
		most(func(w api.Worker) int64 { return w.Restarts })},
	{"HOST", 12, func(w api.Worker) string { return orDash(w.Host) },
		func(a, b api.Worker) int { return cmp.Compare(a.Host, b.Host) }},
	{"HOLDER OR REASON", 0, remark, nil},
}

// most puts the workers with the greatest value first.
func most[T cmp.Ordered](value func(w api.Worker) T) func(a, b api.Worker) int {
	return func(a, b api.Worker) int { return cmp.Compare(value(b), value(a)) }
}

// byName orders by pool and slot.
func byName(a, b api.Worker) int {
	poolA, slotA, _ := api.ParseWorkerName(a.Worker)
	poolB, slotB, _ := api.ParseWorkerName(b.Worker)
	return cmp.Or(cmp.Compare(poolA, poolB), cmp.Compare(slotA, slotB))
}

// byTrouble puts the workers out of service first.
func byTrouble(a, b api.Worker) int {
	if in := a.State.InService(); in != b.State.InService() {
		return map[bool]int{false: -1, true: 1}[in]
	}
	return cmp.Compare(a.State, b.State)
}

// soonest is the greater the nearer the failure of a worker is, and 0 if none is in sight.
func soonest(w api.Worker) float64 {
	if w.FailsInS <= 0 {
		return 0
	}
	return 1 / w.FailsInS
}

// remark is why a worker is out of service, or else who holds it and why to watch it.
func remark(w api.Worker) string {
	if reason := w.ReasonOutOfService(); reason != "" {
		return reason
	}
	var remarks []string
	if holders := holders(w, time.Now()); holders != "" {
		remarks = append(remarks, "held by "+holders)
	}
	if w.Watch != "" {
		remarks = append(remarks, w.Watch)
	}
	return strings.Join(remarks, "; ")
}

// sortWorkers sorts by a column, and workers that are equal in it by their names.
func sortWorkers(workers []api.Worker, column int) {
	slices.SortFunc(workers, func(a, b api.Worker) int { return cmp.Or(topColumns[column].order(a, b), byName(a, b)) })
}

// filterWorkers are the workers that contain every word of the filter in their name, state, host, holder or reason.
func filterWorkers(workers []api.Worker, filter string) []api.Worker {
	words := strings.Fields(strings.ToLower(filter))
	var kept []api.Worker
	for _, w := range workers {
		text := strings.ToLower(strings.Join([]string{w.Worker, string(w.State), w.Host, remark(w)}, "\n"))
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			kept = append(kept, w)
		}
	}
	return kept
}
