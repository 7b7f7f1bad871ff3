package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
)

var (
	attributePool   = temporal.NewSearchAttributeKeyKeyword(api.SearchAttributePool)
	attributeState  = temporal.NewSearchAttributeKeyKeyword(api.SearchAttributeState)
	attributeHealth = temporal.NewSearchAttributeKeyKeyword(api.SearchAttributeHealth)
	attributeHost   = temporal.NewSearchAttributeKeyKeyword(api.SearchAttributeHost)
)

// reported is what the outside was last told. Ready and busy are one life to it, so that leases cost it nothing.
type reported struct {
	State       lifecycle.State  `json:"state,omitempty"`
	Health      lifecycle.Health `json:"health,omitempty"`
	Host        string           `json:"host,omitempty"`
	Incarnation int64            `json:"incarnation,omitempty"`
	Resting     bool             `json:"resting,omitempty"`
	// StartsFailed is for the pool's breaker: a failed start of a successor changes nothing else.
	StartsFailed int64 `json:"starts_failed,omitempty"`
}

// report tells the pool, the search attributes and the reader of the Web UI what has changed.
func (w *worker) report() {
	workflow.SetCurrentDetails(w.ctx, w.details())
	current := reported{w.Machine.State, w.Machine.Health, w.Process.Host, w.Machine.Incarnation, w.Resting, w.StartsFailed}
	if current.State == lifecycle.Busy {
		current.State = lifecycle.Ready
	}
	if current == w.Reported || w.flaps(current) {
		return
	}
	if w.Searchable {
		w.upsert(current)
	}
	w.Reported = current
	if !w.Orphan && !w.ended() { // the last word is sayGoodbye's
		w.tellPool(false)
	}
}

// A worker that crashes again and again would fill histories with its ups and downs: nine or ten events for each, its own and its
// pool's. So it stays as it is to its pool and to searches until something comes of it; who asks the worker itself hears what is.
const (
	// untoldIncarnations bounds how far the pool's knowledge lags behind; the numbers of a lost worker's slot go on beyond it.
	untoldIncarnations = 8
	// untoldFailures bounds how many failed starts the pool's breaker does not know of, where it is there for more than one worker.
	untoldFailures = 3
	// flapStart is how long the newest start may have taken; a longer one costs little a second, and is told.
	flapStart = 20 * time.Second
)

// flaps reports whether the newest change is one of those: never the end of a process that the pool knows to serve.
func (w *worker) flaps(current reported) bool {
	if w.Failures == 0 || w.Reported.State != lifecycle.Pending && w.Reported.State != lifecycle.Starting || w.Hold.Room {
		return false
	}
	switch current.State {
	case lifecycle.Ready:
		return !w.settledIn()
	case lifecycle.Starting:
	case lifecycle.Pending:
		if w.Hold.Pool && w.Held == "" || w.Reported.State == lifecycle.Starting && w.Hold.Until.Sub(w.now()) > shortWait {
			return false
		}
	default:
		return false
	}
	heard := w.Held != "" || w.Spec.Pool.Size <= 1 || current.StartsFailed-w.Reported.StartsFailed < untoldFailures
	return heard && current.Incarnation-w.Reported.Incarnation < untoldIncarnations && w.lastStart() < flapStart
}

// settledIn reports whether a process that serves has lived for long enough after a crash; the pool is told of it then. It serves
// before.
func (w *worker) settledIn() bool {
	return w.Failures == 0 || w.now().Sub(w.Machine.StartedAt) >= policy.SettledAfter
}

// lastStart is how long the newest start took that has ended; long, if none is on record.
func (w *worker) lastStart() time.Duration {
	for i := len(w.Machine.Ring) - 1; i >= 0; i-- {
		if t := w.Machine.Ring[i]; t.From == lifecycle.Starting && !t.Note() {
			return time.Duration(t.DurationMS) * time.Millisecond
		}
	}
	return flapStart
}

func (w *worker) upsert(current reported) {
	updates := []temporal.SearchAttributeUpdate{
		attributePool.ValueSet(w.Pool), attributeState.ValueSet(string(current.State)), attributeHealth.ValueSet(string(current.Health)),
	}
	if current.Host != "" {
		updates = append(updates, attributeHost.ValueSet(current.Host))
	} else if w.Reported.Host != "" {
		updates = append(updates, attributeHost.ValueUnset())
	}
	if err := workflow.UpsertTypedSearchAttributes(w.ctx, updates...); err != nil {
		workflow.GetLogger(w.ctx).Warn("search attributes not set", "error", err)
	}
}

// tellPool sends the pool this worker's entry of the roster. A pool that is no more ends the worker.
func (w *worker) tellPool(gone bool) workflow.Future {
	entry := api.RosterEntry{
		Slot: w.Slot, State: w.Machine.State, Incarnation: w.Machine.Incarnation,
		Host: w.Process.Host, PID: w.Process.PID, Endpoint: w.Process.Endpoint,
		Since: w.Machine.Since, Reason: w.reason(), SpecVersion: w.SpecVersion, LeaseSeq: w.LeaseSeq,
		Starts: w.Starts, StartsFailed: w.StartsFailed,
		Resting: w.Resting, ReasonCode: w.why(), Gone: gone, RunID: workflow.GetInfo(w.ctx).FirstRunID,
	}
	future := workflow.SignalExternalWorkflow(w.ctx, api.PoolWorkflowID(w.Pool), "", api.SignalWorkerChanged,
		api.WorkerChanged{RosterEntry: entry})
	if !gone {
		w.telling++
		w.ear.addFuture(future, func(f workflow.Future) {
			w.telling--
			var unknown *temporal.UnknownExternalWorkflowExecutionError
			if err := f.Get(w.ctx, nil); errors.As(err, &unknown) {
				workflow.GetLogger(w.ctx).Warn("the pool is gone; this worker ends with it", "pool", w.Pool, "error", err)
				w.end()
			}
		})
	}
	return future
}

// sayGoodbye ends the workflow of a slot that is no more.
func (w *worker) sayGoodbye() error {
	if !w.Orphan {
		// A pool that has closed before its workers needs no word of their end.
		_ = w.tellPool(true).Get(w.ctx, nil)
	}
	return nil
}

// why is in one word why the worker is out of service.
func (w *worker) why() api.ReasonCode {
	switch {
	case w.GaveUp:
		return api.ReasonGaveUp
	case w.Resting:
		return api.ReasonStopped
	case w.Machine.State == lifecycle.Degraded:
		return api.ReasonDegraded
	case w.Machine.State == lifecycle.Suspended:
		return api.ReasonSuspended
	case w.Machine.State != lifecycle.Pending:
		return ""
	case w.Hold.Room:
		return api.ReasonNoCapacity
	case w.Hold.Pool && w.Held != "":
		return api.ReasonBreaker
	case w.Hold.Pool:
		return api.ReasonStartRate
	}
	return api.ReasonBackoff
}

// reason is why the worker is where it is, for people.
func (w *worker) reason() string {
	if w.Hold.Reason != "" {
		return w.Hold.Reason
	}
	return w.lastReason()
}

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
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", t.Timestamp.UTC().Format(time.RFC3339), t.From, t.Event, t.To, cell(t.Reason))
	}
	return b.String()
}

const maxDetailRows = 10

// cell fits a reason into one cell of a Markdown table.
func cell(s string) string {
	return strings.ReplaceAll(brief(s), "|", "\\|")
}

// brief puts a reason on one line. Of a long one the beginning stays, which says what happened, and the end, where a program's
// last words are.
func brief(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > briefHead+briefTail {
		return string(r[:briefHead]) + " … " + string(r[len(r)-briefTail:])
	}
	return string(r)
}

const briefHead, briefTail = 200, 200
