package worker

import (
	"fmt"
	"strings"
	"time"

	"github.com/tempool/tempool/workflows/internal/display"
)

// details is the page a reader of the Web UI sees above the history.
func (w *worker) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s: %s", w.name(), w.Machine.State)
	if w.Resting {
		b.WriteString(" (resting until an operator's `restart`)")
	}
	fmt.Fprintf(&b, "\n\n%s\n\n", w.reason())
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n| health | %s |\n| incarnation | %d |\n", w.Machine.Health, w.Machine.Incarnation)
	if w.Process.Host != "" {
		fmt.Fprintf(&b, "| host | %s |\n| PID | %d |\n", w.Process.Host, w.Process.PID)
	}
	if w.Lease != nil {
		fmt.Fprintf(&b, "| lease | `%s` of %s until %s |\n", w.Lease.ID, w.Lease.Holder, w.Lease.ExpiresAt.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(&b, "| leases granted | %d |\n| requests served | %d |\n| spec version | %d |\n", w.Counters.LeasesGranted, w.Counters.RequestsServed, w.SpecVersion)
	if w.LastRefusal != "" {
		fmt.Fprintf(&b, "| last refusal | %s |\n", w.LastRefusal)
	}
	b.WriteString("\n**Last transitions**\n\n| when | from | event | to | why |\n| --- | --- | --- | --- | --- |\n")
	ring := w.Machine.Ring
	for i := len(ring) - 1; i >= 0 && i >= len(ring)-maxDetailRows; i-- {
		t := ring[i]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", t.Timestamp.UTC().Format(time.RFC3339), t.From, t.Event, t.To, display.Cell(t.Reason))
	}
	return b.String()
}

const maxDetailRows = 10
