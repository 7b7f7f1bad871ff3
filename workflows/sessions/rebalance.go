package sessions

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// RebalanceRun is the whole state of a rebalancing: the input of its workflow, and the argument of its continue-as-new.
// The caller sets RebalanceSessionsRequest only.
type RebalanceRun struct {
	api.RebalanceSessionsRequest
	Progress api.SessionProgress `json:"progress,omitzero"`
	// Flows are the rest of the plan, grouped by source worker; After is the id after which the next page of the first
	// worker begins.
	Planned       bool              `json:"planned,omitempty"`
	Flows         []api.SessionFlow `json:"flows,omitempty"`
	After         string            `json:"after,omitempty"`
	ContinueEvery int               `json:"continue_every,omitempty"` // pages, for tests
}

// rebalancing is one run.
type rebalancing struct {
	*RebalanceRun
	*mover
}

// Rebalance distributes sessions by weight with the fewest moves. Sessions that cannot be moved stay, and the result
// lists them. When it is cancelled, moved sessions stay moved, and transfers under way are undone.
func Rebalance(ctx workflow.Context, run RebalanceRun) (api.SessionMoves, error) {
	r := &rebalancing{RebalanceRun: &run}
	m, err := newMover(ctx, run.Pool, "rebalancing the sessions of pool "+run.Pool, run.HookTimeout.D(), &run.Progress)
	if err != nil {
		return run.Progress.SessionMoves, err
	}
	r.mover = m
	return m.finish(ctx, r.run(ctx))
}

// run moves page after page until the plan is done.
func (r *rebalancing) run(ctx workflow.Context) error {
	for ; ; r.pages++ {
		if r.mayContinue(ctx, r.ContinueEvery) {
			return workflow.NewContinueAsNewError(ctx, api.WorkflowRebalanceSessions, *r.RebalanceRun)
		}
		s, err := r.survey(ctx, "")
		if err != nil {
			return err
		}
		if !r.Planned {
			if err := r.plan(s); err != nil {
				return err
			}
			r.showProgress(ctx, "started")
		}
		if len(r.Flows) == 0 || ctx.Err() != nil {
			return nil
		}
		if err := r.transferPage(ctx, s); err != nil {
			return err
		}
	}
}

// plan plans the moves.
func (r *rebalancing) plan(s survey) error {
	for _, slot := range workflow.DeterministicKeys(r.Weights) {
		weight := r.Weights[slot]
		w, err := r.locate(s, slot)
		switch {
		case weight < 0 || weight > maxWeight:
			return failure.Refusal(api.Errorf(api.CodeInvalid, "the weight of worker %d is %d; it must be from 0 to %d", slot,
				weight, maxWeight))
		case err != nil:
			return err
		case weight > 0 && !w.serves:
			return failure.Refusal(api.Errorf(api.CodeNoWorkers,
				"%s is %s and takes no sessions now; leave it out, or wait until it serves", w.worker, w.State))
		}
	}
	var loads []policy.SessionLoad
	for _, w := range s.workers {
		weight, takesPart := r.Weights[w.Slot]
		if len(r.Weights) == 0 {
			weight, takesPart = 1, w.serves && !w.closed
		}
		if takesPart {
			loads = append(loads, policy.SessionLoad{Worker: w.worker, Sessions: w.sessions, Weight: weight})
		}
	}
	flows, err := policy.RebalanceSessions(loads)
	if err != nil {
		return failure.Refusal(api.Errorf(api.CodeInvalid, "%w", err))
	}
	r.Planned, r.Flows = true, flows
	for _, f := range flows {
		r.Progress.Total += f.Count
	}
	if r.Progress.Total == 0 {
		r.Progress.Note = "the sessions are already balanced"
	}
	return nil
}

// maxWeight keeps products of weights and sessions from overflowing an int.
const maxWeight = 1_000_000

// transferPage moves a page of the first worker's sessions, and removes from the plan what has moved or cannot move.
func (r *rebalancing) transferPage(ctx workflow.Context, s survey) error {
	from, need := r.Flows[0].From, 0
	own := 0 // how many flows are of this worker
	for ; own < len(r.Flows) && r.Flows[own].From == from; own++ {
		need += r.Flows[own].Count
	}
	source := s.find(from)
	var page api.SessionBindingsResult
	if source.present {
		var err error
		if page, err = r.page(ctx, source.location, r.After, min(sessionPage, need)); err != nil {
			return err
		}
	}
	transfers, flows := []transfer{}, []int{} // the flow of each transfer
	left := page.Page
	for i := range own {
		to := s.find(r.Flows[i].To)
		n := min(r.Flows[i].Count, len(left))
		if n == 0 || !to.present {
			continue
		}
		transfers = append(transfers, transfer{from: []location{source.location}, to: to.location, sessions: left[:n:n]})
		flows = append(flows, i)
		left = left[n:]
	}
	if len(transfers) == 0 { // the worker has gone, or those that were to take from it, or its sessions
		r.Flows, r.After = r.Flows[own:], ""
		return nil
	}
	for i, moved := range r.transferAll(ctx, transfers) {
		r.Flows[flows[i]].Count -= moved
		need -= moved
	}
	r.After = page.Page[len(page.Page)-len(left)-1]
	if need == 0 || !page.More && len(left) == 0 {
		r.Flows, r.After = r.Flows[own:], ""
	}
	return nil
}
