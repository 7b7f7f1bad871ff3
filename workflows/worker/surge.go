package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// With rotation.surge a worker has two processes for a while: the incarnation that serves, and its successor, which starts beside
// it. When the successor is ready it takes over in one step, so that nobody ever sees the worker out of service, and the old process
// leaves: it finishes its calls and is stopped, beside the new one. The machine knows one incarnation at a time; the number of
// the successor becomes the worker's, and its fencing epoch, with that step.

// successor is the incarnation that is to take over.
type successor struct {
	Incarnation int64 `json:"incarnation"`
	SpecVersion int64 `json:"spec_version"`
	// Ready is set when the process has passed its handshake and warm-up, while a client's lease on the old one runs out.
	Ready *api.StartResult `json:"ready,omitempty"`
	start *loop.Task
}

// drainingIncarnation is an incarnation that leaves beside the worker's own.
type drainingIncarnation struct {
	Incarnation int64      `json:"incarnation"`
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	Lease       *api.Lease `json:"lease,omitempty"` // the gateway's, whose usage is still to come
	Reason      string     `json:"reason"`
	Reported    api.Usage  `json:"told,omitzero"` // see usage.go
	disruption  bool       // its end is also the end of the worker's turn
}

// startSuccessor starts the next incarnation beside the one that serves.
func (w *worker) startSuccessor() {
	sp, version := w.nextSpec(), w.SpecVersion
	if w.NextSpec != nil {
		version = w.NextSpec.Version
	}
	w.HighestIncarnation = max(w.HighestIncarnation, w.Machine.Incarnation) + 1
	s := &successor{Incarnation: w.HighestIncarnation, SpecVersion: version}
	w.Successor = s
	process := api.Process{Worker: w.name(), Incarnation: s.Incarnation}
	t, future := w.activity(api.ActivityStart, activityOptions{
		queue:   api.PlacementQueue(sp.Pool.Placement),
		summary: fmt.Sprintf("start incarnation %d of %s to take over", s.Incarnation, w.name()),
		toStart: placementTimeout, toClose: sp.Start.Timeout.D() + slack, silent: loop.HeartbeatTimeout, awaitCancel: true,
	}, api.StartRequest{Process: process, Spec: sp, KeepIncarnations: append(w.drainingNumbers(), w.Machine.Incarnation)})
	s.start = t
	workflow.Go(w.ctx, func(ctx workflow.Context) {
		var a completion[api.StartResult]
		a.err = future.Get(ctx, &a.result)
		w.countStart(a.err)
		loop.ReleaseTask(&s.start)
		switch {
		case w.Successor == s:
			w.events.successor = &a
		case a.err == nil: // dismissed, and too late to be called off
			w.stopDrained(ctx, drainingIncarnation{Incarnation: s.Incarnation, Host: a.result.Host, PID: a.result.PID, Reason: "it was not needed any more"})
			w.removeDrained(s.Incarnation)
		default:
			w.removeDrained(s.Incarnation)
		}
		w.wakeUp()
	})
}

// attemptSwitch has the successor take over when it is ready, or deals with its failure. It reports whether anything changed.
func (w *worker) attemptSwitch() bool {
	a := take(&w.events.successor)
	if a == nil {
		return false
	}
	r := w.Rotation
	if a.err == nil {
		w.Successor.Ready = &a.result
		w.transition(lifecycle.Drain, r.Reason, nil)
		if w.Lease == nil || w.gatewayHolds() {
			w.switchOver()
		} // else a client has the worker: what it has in flight finishes first
		return true
	}
	w.Successor = nil
	if newest, outdated := failure.Superseded(a.err); outdated {
		w.HighestIncarnation = max(w.HighestIncarnation, newest)
		return true
	}
	if failure.NotStarted(a.err) {
		r.InPlace = true
		r.Reason += " (no host has room for a second process, so this one stops first)"
		return true
	}
	r.Tries++
	r.Failed = failure.Message(a.err)
	recovery := w.recovery()
	if limit := recovery.MaxConsecutiveFailures; limit > 0 && r.Tries >= limit {
		w.abandonRotation(fmt.Sprintf("the next process did not start, %d times in a row; the last time: %s", r.Tries, r.Failed))
		return true
	}
	if r.Tries == 1 { // the ones between this and giving up would push the worker's life out of its history
		w.record(lifecycle.RotationFailed, "The next process did not start, and is tried again: "+r.Failed)
	}
	decision := recovery.Next(r.Tries+1, r.Failed, rand.New(workflow.GetRandomStream(w.ctx, "backoff")).Float64())
	if decision.Action == policy.Restart {
		r.RetryAt = w.now().Add(decision.Delay)
	}
	return true
}

// switchOver makes the successor, which is ready, the worker's incarnation, in one workflow task: the machine walks from draining
// through the end of the old incarnation to ready. The old process leaves beside it.
func (w *worker) switchOver() {
	s, r := w.Successor, w.Rotation
	d := drainingIncarnation{Incarnation: w.Machine.Incarnation, Host: w.Process.Host, PID: w.Process.PID, Lease: w.Lease, Reason: r.Reason, Reported: w.Process.Reported, disruption: true}
	w.Process.Observed = api.Usage{} // it goes on; its host tells in the end
	w.processExited(&lifecycle.Exit{Interrupted: true}, fmt.Sprintf(
		"it makes way for incarnation %d, which is ready on host %s; its last calls finish beside that one, then process %d is stopped",
		s.Incarnation, s.Ready.Host, d.PID))
	w.activateSuccessor()
	w.startDrain(d)
}

// activateSuccessor makes the successor, which is ready, the worker's incarnation, when that before has ended.
func (w *worker) activateSuccessor() {
	s, r := w.Successor, w.Rotation
	w.Successor = nil
	w.Machine.Incarnation, w.HighestIncarnation = s.Incarnation-1, 0
	w.Cause, w.StartReleased = r.Cause, true
	w.beginIncarnation(r.Reason)
	w.startEnded(&completion[api.StartResult]{result: *s.Ready})
}

// recordSuccessorReady notes that the successor is ready, when that came with news that are acted on before it.
func (w *worker) recordSuccessorReady() {
	if a := w.events.successor; w.Successor != nil && a != nil && a.err == nil {
		w.Successor.Ready, w.events.successor = &a.result, nil
	}
}

// startDrain has an incarnation finish its calls and stops it, beside the worker's own.
func (w *worker) startDrain(d drainingIncarnation) {
	w.Draining = append(w.Draining, d)
	workflow.Go(w.ctx, func(ctx workflow.Context) {
		limit := w.Spec.Rotation.DrainTimeout
		options := w.onHostOf(d.Host, fmt.Sprintf("drain incarnation %d: its calls in flight finish", d.Incarnation), limit.D()+slack)
		future := execute(w.ctx, api.ActivityDrain, options, api.DrainRequest{Process: w.processOf(d.Incarnation), Timeout: limit})
		var result api.DrainResult
		if err := future.Get(ctx, &result); err == nil {
			if result.Checkin != nil {
				w.checkinDraining(*result.Checkin)
			}
			if result.Cut > 0 {
				w.recordCutCalls(result.Cut)
				if w.LastRotation != nil && w.LastRotation.Incarnation == d.Incarnation {
					w.LastRotation.Cut = result.Cut
				}
				workflow.GetLogger(ctx).Warn("calls were cut", "worker", w.name(), "incarnation", d.Incarnation, "calls", result.Cut, "drain_timeout", limit)
			}
		}
		w.stopDrained(ctx, d)
		w.removeDrained(d.Incarnation)
		if d.disruption {
			w.endDisruption(d.Incarnation, false, "")
		}
		w.wakeUp()
	})
}

// stopDrained ends a process that leaves. Where its host does not answer, its number fences it, and the host's agent kills it.
func (w *worker) stopDrained(ctx workflow.Context, d drainingIncarnation) {
	grace := w.Spec.Pool.StopGrace
	future := execute(w.ctx, api.ActivityStop, w.onHostOf(d.Host, fmt.Sprintf("stop incarnation %d: %s", d.Incarnation, d.Reason), grace.D()+2*slack),
		api.StopRequest{Process: w.processOf(d.Incarnation), Grace: grace, Reason: d.Reason})
	var result api.StopResult
	if err := future.Get(ctx, &result); err != nil {
		workflow.GetLogger(ctx).Warn("an incarnation that was to leave was not stopped", "worker", w.name(), "incarnation", d.Incarnation, "error", err)
		return
	}
	if result.Usage != nil {
		for _, left := range w.Draining {
			if left.Incarnation == d.Incarnation {
				w.addUsage(unreported(*result.Usage, left.Reported))
			}
		}
	}
}

func (w *worker) removeDrained(incarnation int64) {
	w.Draining = slices.DeleteFunc(w.Draining, func(d drainingIncarnation) bool { return d.Incarnation == incarnation })
}

// checkinDraining takes a checkin of a lease on an incarnation that leaves, and reports whether it was one.
func (w *worker) checkinDraining(r api.CheckinRequest) bool {
	for i := range w.Draining {
		if lease := w.Draining[i].Lease; lease != nil && lease.ID == r.LeaseID {
			w.Draining[i].Lease = nil
			w.Draining[i].Reported = sum(w.Draining[i].Reported, r.Usage)
			w.countUsage(r.Usage, w.Draining[i].Incarnation)
			return true
		}
	}
	return false
}

// isDrainingLease reports whether a lease is on an incarnation that leaves, so that its calls may finish.
func (w *worker) isDrainingLease(id string) bool {
	return slices.ContainsFunc(w.Draining, func(d drainingIncarnation) bool { return d.Lease != nil && d.Lease.ID == id })
}

// drainingNumbers lists the incarnations that leave.
func (w *worker) drainingNumbers() []int64 {
	var numbers []int64
	for _, d := range w.Draining {
		numbers = append(numbers, d.Incarnation)
	}
	return numbers
}

// cancelSuccessor ends the successor, if there is one, before it has taken over.
func (w *worker) cancelSuccessor(why string) {
	s := w.Successor
	if s == nil {
		return
	}
	w.recordSuccessorReady()
	w.Successor = nil
	switch {
	case s.Ready != nil:
		w.startDrain(drainingIncarnation{Incarnation: s.Incarnation, Host: s.Ready.Host, PID: s.Ready.PID, Reason: why})
	case s.start != nil:
		w.Draining = append(w.Draining, drainingIncarnation{Incarnation: s.Incarnation, Reason: why})
		s.start.Cancel()
	}
}

func (w *worker) processOf(n int64) api.Process {
	return api.Process{Worker: w.name(), Incarnation: n}
}
