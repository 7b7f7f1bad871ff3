package worker

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/display"
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
	if current == w.Reported || w.isFlapping(current) {
		return
	}
	if w.Searchable {
		w.upsert(current)
	}
	w.Reported = current
	if !w.Standalone && !w.isDone() { // the last word is reportGone's
		w.reportToPool(false)
	}
}

// A worker that crashes again and again would fill histories with its ups and downs: nine or ten events for each, its own and its
// pool's. So it stays as it is to its pool and to searches until something comes of it; who asks the worker itself hears what is.
const (
	// UnreportedIncarnations bounds how far the pool's knowledge lags behind; the numbers of a lost worker's slot go on beyond it.
	UnreportedIncarnations = 8
	// unreportedFailures bounds how many failed starts the pool's breaker does not know of, where it is there for more than one worker.
	unreportedFailures = 3
	// maxFlappingStart is how long the newest start may have taken; a longer one costs little a second, and is told.
	maxFlappingStart = 20 * time.Second
)

// isFlapping reports whether the newest change is one of those: never the end of a process that the pool knows to serve.
func (w *worker) isFlapping(current reported) bool {
	if w.Failures == 0 || w.Reported.State != lifecycle.Pending && w.Reported.State != lifecycle.Starting || w.Wait.Capacity {
		return false
	}
	switch current.State {
	case lifecycle.Ready:
		return !w.isStable()
	case lifecycle.Starting:
	case lifecycle.Pending:
		if w.Wait.Pool && w.StartsHeld == "" || w.Reported.State == lifecycle.Starting && w.Wait.Until.Sub(w.now()) > maxServerBackoff {
			return false
		}
	default:
		return false
	}
	heard := w.StartsHeld != "" || w.Spec.Pool.Size <= 1 || current.StartsFailed-w.Reported.StartsFailed < unreportedFailures
	return heard && current.Incarnation-w.Reported.Incarnation < UnreportedIncarnations && w.lastStartDuration() < maxFlappingStart
}

// isStable reports whether a process that serves has lived for long enough after a crash; the pool is told of it then. It serves
// before.
func (w *worker) isStable() bool {
	return w.Failures == 0 || w.now().Sub(w.Machine.StartedAt) >= policy.SettledAfter
}

// lastStartDuration is how long the newest start took that has ended; long, if none is on record.
func (w *worker) lastStartDuration() time.Duration {
	for i := len(w.Machine.Ring) - 1; i >= 0; i-- {
		if t := w.Machine.Ring[i]; t.From == lifecycle.Starting && !t.Note() {
			return time.Duration(t.DurationMS) * time.Millisecond
		}
	}
	return maxFlappingStart
}

func (w *worker) upsert(current reported) {
	updates := []temporal.SearchAttributeUpdate{
		display.AttributePool.ValueSet(w.Pool), display.AttributeState.ValueSet(string(current.State)), display.AttributeHealth.ValueSet(string(current.Health)),
	}
	if current.Host != "" {
		updates = append(updates, display.AttributeHost.ValueSet(current.Host))
	} else if w.Reported.Host != "" {
		updates = append(updates, display.AttributeHost.ValueUnset())
	}
	if err := workflow.UpsertTypedSearchAttributes(w.ctx, updates...); err != nil {
		workflow.GetLogger(w.ctx).Warn("search attributes not set", "error", err)
	}
}

// reportToPool sends the pool this worker's entry of the roster. A pool that is no more ends the worker.
func (w *worker) reportToPool(gone bool) workflow.Future {
	entry := api.RosterEntry{
		Slot: w.Slot, State: w.Machine.State, Incarnation: w.Machine.Incarnation,
		Host: w.Process.Host, PID: w.Process.PID, Endpoint: w.Process.Endpoint,
		Since: w.Machine.Since, Reason: w.reason(), SpecVersion: w.SpecVersion, LeaseSeq: w.LeaseSeq,
		Starts: w.Starts, StartsFailed: w.StartsFailed,
		Resting: w.Resting, ReasonCode: w.reasonCode(), Gone: gone, RunID: workflow.GetInfo(w.ctx).FirstRunID,
	}
	future := workflow.SignalExternalWorkflow(w.ctx, api.PoolWorkflowID(w.Pool), "", api.SignalWorkerChanged,
		api.WorkerChanged{RosterEntry: entry})
	if !gone {
		w.signalsInFlight++
		w.selector.AddFuture(future, func(f workflow.Future) {
			w.signalsInFlight--
			var unknown *temporal.UnknownExternalWorkflowExecutionError
			if err := f.Get(w.ctx, nil); errors.As(err, &unknown) {
				workflow.GetLogger(w.ctx).Warn("the pool is gone; this worker ends with it", "pool", w.Pool, "error", err)
				w.end()
			}
		})
	}
	return future
}

// reportGone ends the workflow of a slot that is no more.
func (w *worker) reportGone() error {
	if !w.Standalone {
		// A pool that has closed before its workers needs no word of their end.
		_ = w.reportToPool(true).Get(w.ctx, nil)
	}
	return nil
}

// reasonCode is in one word why the worker is out of service.
func (w *worker) reasonCode() api.ReasonCode {
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
	case w.Wait.Capacity:
		return api.ReasonNoCapacity
	case w.Wait.Pool && w.StartsHeld != "":
		return api.ReasonBreaker
	case w.Wait.Pool:
		return api.ReasonStartRate
	}
	return api.ReasonBackoff
}

// reason is why the worker is where it is, for people.
func (w *worker) reason() string {
	if w.Wait.Reason != "" {
		return w.Wait.Reason
	}
	return w.lastReason()
}
