package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/format"
)

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
