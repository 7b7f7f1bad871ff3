package workflows

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
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
	start *task
}

// departure is an incarnation that leaves beside the worker's own.
type departure struct {
	Incarnation int64      `json:"incarnation"`
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	Lease       *api.Lease `json:"lease,omitempty"` // the gateway's, whose usage is still to come
	Reason      string     `json:"reason"`
	Told        api.Usage  `json:"told,omitzero"` // see usage.go
	turn        bool       // its end is also the end of the worker's turn
}

// beginSuccessor starts the next incarnation beside the one that serves.
func (w *worker) beginSuccessor() {
	sp, version := w.nextSpec(), w.SpecVersion
	if w.NextSpec != nil {
		version = w.NextSpec.Version
	}
	w.Reached = max(w.Reached, w.Machine.Incarnation) + 1
	s := &successor{Incarnation: w.Reached, SpecVersion: version}
	w.Successor = s
	process := api.Process{Worker: w.name(), Incarnation: s.Incarnation}
	t, future := w.activity(api.ActivityStart, activityOptions{
		queue:   api.PlacementQueue(sp.Pool.Placement),
		summary: fmt.Sprintf("start incarnation %d of %s to take over", s.Incarnation, w.name()),
		toStart: placementPatience, toClose: sp.Start.Timeout.D() + slack, silent: heartbeatTimeout, awaitCancel: true,
	}, api.StartRequest{Process: process, Spec: sp, KeepIncarnations: append(w.leaving(), w.Machine.Incarnation)})
	s.start = t
	workflow.Go(w.ctx, func(ctx workflow.Context) {
		var a answer[api.StartResult]
		a.err = future.Get(ctx, &a.result)
		w.tally(a.err)
		endTask(&s.start)
		switch {
		case w.Successor == s:
			w.facts.successor = &a
		case a.err == nil: // dismissed, and too late to be called off
			w.stopLeaving(ctx, departure{Incarnation: s.Incarnation, Host: a.result.Host, PID: a.result.PID, Reason: "it was not needed any more"})
			w.left(s.Incarnation)
		default:
			w.left(s.Incarnation)
		}
		w.stir()
	})
}

// succeed has the successor take over when it is ready, or deals with its failure. It reports whether anything changed.
func (w *worker) succeed() bool {
	a := taken(&w.facts.successor)
	if a == nil {
		return false
	}
	r := w.Rotation
	if a.err == nil {
		w.Successor.Ready = &a.result
		w.next(lifecycle.Drain, r.Reason, nil)
		if w.Lease == nil || w.gatewayHolds() {
			w.handOver()
		} // else a client has the worker: what it has in flight finishes first
		return true
	}
	w.Successor = nil
	if newest, outdated := superseded(a.err); outdated {
		w.Reached = max(w.Reached, newest)
		return true
	}
	if neverStarted(a.err) {
		r.InPlace = true
		r.Reason += " (no host has room for a second process, so this one stops first)"
		return true
	}
	r.Tries++
	r.Failed = sentence(a.err)
	recovery := w.recovery()
	if limit := recovery.MaxConsecutiveFailures; limit > 0 && r.Tries >= limit {
		w.giveUpRotation(fmt.Sprintf("the next process did not start, %d times in a row; the last time: %s", r.Tries, r.Failed))
		return true
	}
	if r.Tries == 1 { // the ones between this and giving up would push the worker's life out of its history
		w.note(lifecycle.RotationFailed, "The next process did not start, and is tried again: "+r.Failed)
	}
	decision := recovery.Next(r.Tries+1, r.Failed, rand.New(workflow.GetRandomStream(w.ctx, "backoff")).Float64())
	if decision.Action == policy.Restart {
		r.RetryAt = w.now().Add(decision.Delay)
	}
	return true
}

// handOver makes the successor, which is ready, the worker's incarnation, in one workflow task: the machine walks from draining
// through the end of the old incarnation to ready. The old process leaves beside it.
func (w *worker) handOver() {
	s, r := w.Successor, w.Rotation
	d := departure{Incarnation: w.Machine.Incarnation, Host: w.Process.Host, PID: w.Process.PID, Lease: w.Lease, Reason: r.Reason, Told: w.Process.Told, turn: true}
	w.Process.Seen = api.Usage{} // it goes on; its host tells in the end
	w.exited(&lifecycle.Exit{Interrupted: true}, fmt.Sprintf(
		"it makes way for incarnation %d, which is ready on host %s; its last calls finish beside that one, then process %d is stopped",
		s.Incarnation, s.Ready.Host, d.PID))
	w.takeOver()
	w.depart(d)
}

// takeOver makes the successor, which is ready, the worker's incarnation, when that before has ended.
func (w *worker) takeOver() {
	s, r := w.Successor, w.Rotation
	w.Successor = nil
	w.Machine.Incarnation, w.Reached = s.Incarnation-1, 0
	w.Cause, w.Released = r.Cause, true
	w.place(r.Reason)
	w.started(&answer[api.StartResult]{result: *s.Ready})
}

// learnOfSuccessor notes that the successor is ready, when that came with news that are acted on before it.
func (w *worker) learnOfSuccessor() {
	if a := w.facts.successor; w.Successor != nil && a != nil && a.err == nil {
		w.Successor.Ready, w.facts.successor = &a.result, nil
	}
}

// depart has an incarnation finish its calls and stops it, beside the worker's own.
func (w *worker) depart(d departure) {
	w.Leaving = append(w.Leaving, d)
	workflow.Go(w.ctx, func(ctx workflow.Context) {
		limit := w.Spec.Rotation.DrainTimeout
		options := w.onHostOf(d.Host, fmt.Sprintf("drain incarnation %d: its calls in flight finish", d.Incarnation), limit.D()+slack)
		future := execute(w.ctx, api.ActivityDrain, options, api.DrainRequest{Process: w.incarnation(d.Incarnation), Timeout: limit})
		var result api.DrainResult
		if err := future.Get(ctx, &result); err == nil {
			if result.Checkin != nil {
				w.checkinLeaving(*result.Checkin)
			}
			if result.Cut > 0 {
				w.cut(result.Cut)
				if w.LastRotation != nil && w.LastRotation.Incarnation == d.Incarnation {
					w.LastRotation.Cut = result.Cut
				}
				workflow.GetLogger(ctx).Warn("calls were cut", "worker", w.name(), "incarnation", d.Incarnation, "calls", result.Cut, "drain_timeout", limit)
			}
		}
		w.stopLeaving(ctx, d)
		w.left(d.Incarnation)
		if d.turn {
			w.endTurn(d.Incarnation, false, "")
		}
		w.stir()
	})
}

// stopLeaving ends a process that leaves. Where its host does not answer, its number fences it, and the host's agent kills it.
func (w *worker) stopLeaving(ctx workflow.Context, d departure) {
	grace := w.Spec.Pool.StopGrace
	future := execute(w.ctx, api.ActivityStop, w.onHostOf(d.Host, fmt.Sprintf("stop incarnation %d: %s", d.Incarnation, d.Reason), grace.D()+2*slack),
		api.StopRequest{Process: w.incarnation(d.Incarnation), Grace: grace, Reason: d.Reason})
	var result api.StopResult
	if err := future.Get(ctx, &result); err != nil {
		workflow.GetLogger(ctx).Warn("an incarnation that was to leave was not stopped", "worker", w.name(), "incarnation", d.Incarnation, "error", err)
		return
	}
	if result.Usage != nil {
		for _, left := range w.Leaving {
			if left.Incarnation == d.Incarnation {
				w.add(untold(*result.Usage, left.Told))
			}
		}
	}
}

func (w *worker) left(incarnation int64) {
	w.Leaving = slices.DeleteFunc(w.Leaving, func(d departure) bool { return d.Incarnation == incarnation })
}

// checkinLeaving takes a checkin of a lease on an incarnation that leaves, and reports whether it was one.
func (w *worker) checkinLeaving(r api.CheckinRequest) bool {
	for i := range w.Leaving {
		if lease := w.Leaving[i].Lease; lease != nil && lease.ID == r.LeaseID {
			w.Leaving[i].Lease = nil
			w.Leaving[i].Told = sum(w.Leaving[i].Told, r.Usage)
			w.count(r.Usage, w.Leaving[i].Incarnation)
			return true
		}
	}
	return false
}

// leaseLeaving reports whether a lease is on an incarnation that leaves, so that its calls may finish.
func (w *worker) leaseLeaving(id string) bool {
	return slices.ContainsFunc(w.Leaving, func(d departure) bool { return d.Lease != nil && d.Lease.ID == id })
}

// leaving lists the incarnations that leave.
func (w *worker) leaving() []int64 {
	var numbers []int64
	for _, d := range w.Leaving {
		numbers = append(numbers, d.Incarnation)
	}
	return numbers
}

// dismissSuccessor ends the successor, if there is one, before it has taken over.
func (w *worker) dismissSuccessor(why string) {
	s := w.Successor
	if s == nil {
		return
	}
	w.learnOfSuccessor()
	w.Successor = nil
	switch {
	case s.Ready != nil:
		w.depart(departure{Incarnation: s.Incarnation, Host: s.Ready.Host, PID: s.Ready.PID, Reason: why})
	case s.start != nil:
		w.Leaving = append(w.Leaving, departure{Incarnation: s.Incarnation, Reason: why})
		s.start.cancel()
	}
}

func (w *worker) incarnation(n int64) api.Process {
	return api.Process{Worker: w.name(), Incarnation: n}
}
