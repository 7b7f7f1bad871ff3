package worker

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/display"
)

// reporter reports the worker's state to the pool, to searches, to queries and to the Web UI.
type reporter struct{ *worker }

// reported is the last report to the pool and the search attributes. Ready and busy count as one state, so that a lease
// costs nothing.
type reported struct {
	State       lifecycle.State  `json:"state,omitempty"`
	Health      lifecycle.Health `json:"health,omitempty"`
	Host        string           `json:"host,omitempty"`
	Incarnation int64            `json:"incarnation,omitempty"`
	Resting     bool             `json:"resting,omitempty"`
	// StartsFailed is for the pool's breaker: a failed start of a successor changes nothing else.
	StartsFailed int64 `json:"starts_failed,omitempty"`
}

// report reports what has changed to the pool, the search attributes and the Web UI.
func (r reporter) report() {
	workflow.SetCurrentDetails(r.Ctx, r.details())
	current := reported{r.Machine.State, r.Machine.Health, r.Process.Host, r.Machine.Incarnation, r.Resting,
		r.StartsFailed}
	if current.State == lifecycle.Busy {
		current.State = lifecycle.Ready
	}
	if current == r.Reported || r.isFlapping(current) {
		return
	}
	if r.starter.announcing && current.State == lifecycle.Starting && !r.Reported.State.InService() {
		current.Host = r.Reported.Host // of which the search attributes know
		r.Reported = current           // by the host
		return
	}
	if r.Searchable {
		r.upsertSearchAttributes(current)
	}
	r.Reported = current
	announced := r.starter.announced && current.State == lifecycle.Ready
	r.starter.announced = false
	if !r.isDone() && !announced { // reportGone sends the last report
		r.reportState()
	}
}

// announce is what the host is to report of the next start; nil if the worker reports it, because it may be one of many
// that fail.
func (r reporter) announce() *api.Announce {
	if r.Standalone || r.Failures > 0 || r.TrialPause > 0 {
		return nil
	}
	return &api.Announce{Reason: display.Shorten(r.reason()),
		SpecVersion: r.SpecVersion, LeaseSeq: r.LeaseSeq, Starts: r.Starts, StartsFailed: r.StartsFailed, Begun: r.Begun}
}

// A worker that crashes repeatedly would fill its own and its pool's history with nine or ten events for each crash. So
// the pool and searches do not see its changes until they last; queries of the worker show them.
const (
	// UnreportedIncarnations bounds how many incarnations are not reported to the pool. A pool that loses a worker skips
	// as many numbers.
	UnreportedIncarnations = 16
	// unreportedFailures bounds how many failed starts are not reported to the breaker of a pool with several workers.
	unreportedFailures = 3
	// maxFlappingStart is the longest duration of a start that is not reported: slower ones cost few events a second.
	maxFlappingStart = 20 * time.Second
	// maxFlappingWait is the longest backoff that is not reported.
	maxFlappingWait = 10 * time.Second
)

// isFlapping reports whether the newest change is one of those. The end of a process that the pool knows to serve never
// is.
func (r reporter) isFlapping(current reported) bool {
	if r.Failures == 0 || r.Reported.State != lifecycle.Pending && r.Reported.State != lifecycle.Starting ||
		r.Wait.Capacity {
		return false
	}
	switch current.State {
	case lifecycle.Ready:
		return !r.isStable()
	case lifecycle.Starting:
	case lifecycle.Pending:
		if r.Wait.Pool && r.StartsPaused == "" || r.Reported.State == lifecycle.Starting &&
			(r.Wait.Pool || r.Wait.Until.Sub(r.Now()) > maxFlappingWait) {
			return false
		}
	default:
		return false
	}
	breakerInformed := r.StartsPaused != "" || r.Spec.Pool.Size <= 1 ||
		current.StartsFailed-r.Reported.StartsFailed < unreportedFailures
	return breakerInformed && current.Incarnation-r.Reported.Incarnation < UnreportedIncarnations &&
		r.lastStartDuration() < maxFlappingStart
}

// isStable reports whether a process has lived long enough after a crash to be reported as ready.
func (r reporter) isStable() bool {
	return r.Failures == 0 || !r.ShortLived || r.Now().Sub(r.Machine.StartedAt) >= policy.StableAfter
}

// lastStartDuration is the duration of the newest start that has ended; maxFlappingStart if the ring has none.
func (r reporter) lastStartDuration() time.Duration {
	for _, t := range slices.Backward(r.Machine.Ring) {
		if t.From == lifecycle.Starting && !t.IsNote() {
			return time.Duration(t.DurationMS) * time.Millisecond
		}
	}
	return maxFlappingStart
}

func (r reporter) upsertSearchAttributes(current reported) {
	updates := []temporal.SearchAttributeUpdate{
		display.AttributePool.ValueSet(r.Pool), display.AttributeState.ValueSet(string(current.State)),
		display.AttributeHealth.ValueSet(string(current.Health)),
	}
	if current.Host != "" {
		updates = append(updates, display.AttributeHost.ValueSet(current.Host))
	} else if r.Reported.Host != "" {
		updates = append(updates, display.AttributeHost.ValueUnset())
	}
	if err := workflow.UpsertTypedSearchAttributes(r.Ctx, updates...); err != nil {
		workflow.GetLogger(r.Ctx).Warn("search attributes not set", "error", err)
	}
}

// reportState sends the pool this worker's roster entry.
func (r reporter) reportState() {
	if !r.Standalone {
		r.signalPool(api.SignalWorkerChanged, r.workerChanged(false))
	}
}

// reportGone sends the last report before the workflow completes. A pool that has closed needs none.
func (r reporter) reportGone() {
	if !r.Standalone {
		_ = workflow.SignalExternalWorkflow(r.Ctx, api.PoolWorkflowID(r.Pool), "", api.SignalWorkerChanged,
			r.workerChanged(true)).Get(r.Ctx, nil)
	}
}

func (r reporter) workerChanged(gone bool) api.RosterEntry {
	ordered := r.RestOrderedAt
	if r.Intent != IntentRest { // it rests for another reason, or a later restart has come
		ordered = time.Time{}
	}
	r.ReportSeq = max(r.ReportSeq+1, r.Now().UnixMilli()) // also above those that a reset of the workflow forgets
	return api.RosterEntry{
		ReportSeq: r.ReportSeq, RestOrderedAt: ordered,
		Slot: r.Slot, State: r.Machine.State, Incarnation: r.Machine.Incarnation,
		Host: r.Process.Host, Epoch: r.Process.Epoch, PID: r.Process.PID, Endpoint: r.Process.Endpoint,
		Since: r.Machine.Since, Reason: display.Shorten(r.reason()), SpecVersion: r.SpecVersion, LeaseSeq: r.LeaseSeq,
		Starts: r.Starts, StartsFailed: r.StartsFailed, Failures: r.failures(),
		Resting: r.Resting, ReasonCode: r.reasonCode(), Gone: gone, RunID: workflow.GetInfo(r.Ctx).FirstRunID, Begun: r.Begun,
	}
}

// signalPool sends the pool a message.
func (r reporter) signalPool(name string, message any) {
	r.Signal(api.PoolWorkflowID(r.Pool), name, message)
}

// undelivered takes the failure of a signal to the pool. A pool that has closed ends the worker.
func (r reporter) undelivered(_, name string, _ time.Time, err error) {
	if _, closed := errors.AsType[*temporal.UnknownExternalWorkflowExecutionError](err); closed {
		workflow.GetLogger(r.Ctx).Warn("pool workflow closed; ending the worker", "pool", r.Pool, "error", err)
		r.end("pool workflow closed")
		return
	}
	workflow.GetLogger(r.Ctx).Warn("signal to the pool not delivered", "signal", name, "error", err)
}

// reasonCode is why the worker is out of service, in one word.
func (r reporter) reasonCode() api.ReasonCode {
	switch {
	case r.GaveUp, r.Resting && r.Intent == IntentRecover && r.Machine.State != lifecycle.Finished: // recovery.restart
		return api.ReasonGaveUp
	case r.Resting:
		return api.ReasonStopped
	case r.Machine.State == lifecycle.Degraded:
		return api.ReasonDegraded
	case r.Machine.State == lifecycle.Suspended:
		return api.ReasonSuspended
	case r.Machine.State != lifecycle.Pending:
		return ""
	case r.Wait.Capacity:
		return api.ReasonNoCapacity
	case r.Wait.Pool && r.StartsPaused != "":
		return api.ReasonBreaker
	case r.Wait.Pool:
		return api.ReasonStartRate
	}
	return api.ReasonBackoff
}
