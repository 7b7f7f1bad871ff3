package worker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/workflows/internal/display"
)

const maxDetailRows = 10

// details is the page that the Web UI shows above the history.
func (r reporter) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s: %s", r.name(), r.Machine.State)
	if r.Resting {
		b.WriteString(" (resting until an operator's `restart`)")
	}
	fmt.Fprintf(&b, "\n\n%s\n\n", r.reason())
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n| health | %s |\n| incarnation | %d |\n", r.Machine.Health,
		r.Machine.Incarnation)
	if r.Process.Host != "" {
		fmt.Fprintf(&b, "| host | %s |\n| PID | %d |\n", r.Process.Host, r.Process.PID)
	}
	if r.Lease != nil {
		fmt.Fprintf(&b, "| lease | `%s` of %s until %s |\n", r.Lease.ID, r.Lease.Holder,
			r.Lease.ExpiresAt.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(&b, "| leases granted | %d |\n| requests served | %d |\n| spec version | %d |\n", r.Counters.LeasesGranted,
		r.leases.counters().RequestsServed, r.SpecVersion)
	if r.LastRefusal != "" {
		fmt.Fprintf(&b, "| last refusal | %s |\n", r.LastRefusal)
	}
	b.WriteString("\n**Last transitions**\n\n| when | from | event | to | reason |\n| --- | --- | --- | --- | --- |\n")
	newest := r.Machine.Ring[max(0, len(r.Machine.Ring)-maxDetailRows):]
	for _, t := range slices.Backward(newest) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", t.Timestamp.UTC().Format(time.RFC3339), t.From, t.Event, t.To,
			display.Cell(t.Reason))
	}
	return b.String()
}
