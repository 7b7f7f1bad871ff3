package sessions

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/failure"
)

const (
	// maxPasses bounds how often an evacuation retries the sessions that it could not move.
	maxPasses = 3
	// evacuationTimeout is how long a run keeps new sessions off the worker, beyond what was requested. If the workflow is
	// terminated, the worker gets sessions again after that.
	evacuationTimeout = time.Hour
)

// EvacuateRun is the whole state of an evacuation: the input of its workflow, and the argument of its continue-as-new.
// The caller sets Pool and EvacuateRequest only.
type EvacuateRun struct {
	Pool string `json:"pool"`
	api.EvacuateRequest
	Progress api.SessionProgress `json:"progress,omitzero"`
	// After is the id after which the next page begins, Pass the number of completed passes, and Before the number of
	// sessions moved before the current one.
	After         string `json:"after,omitempty"`
	Pass          int    `json:"pass,omitempty"`
	Before        int    `json:"before,omitempty"`
	ContinueEvery int    `json:"continue_every,omitempty"` // pages, for tests
}

// evacuation is one run.
type evacuation struct {
	*EvacuateRun
	*mover
	at location
}

// Evacuate moves all sessions of a worker evenly to the other workers of its pool, and keeps new ones off it. Sessions
// that cannot be moved stay, and the result lists them. It fails if no worker can take sessions. Then, and when it is
// cancelled, moved sessions stay moved, transfers under way are undone, and the worker gets sessions again.
func Evacuate(ctx workflow.Context, run EvacuateRun) (api.SessionMoves, error) {
	e := &evacuation{EvacuateRun: &run}
	worker := api.WorkerName(run.Pool, run.Worker)
	run.Progress.Worker = worker
	m, err := newMover(ctx, run.Pool, "evacuating "+worker, run.HookTimeout.D(), &run.Progress)
	if err != nil {
		return run.Progress.SessionMoves, err
	}
	if e.mover = m; e.ExcludeFor != nil && (*e.ExcludeFor < 0 || e.ExcludeFor.D() > api.MaxSessionExclusion) {
		return run.Progress.SessionMoves,
			failure.Refusal(api.Errorf(api.CodeInvalid, "exclude_for is %s; it must be from 0 to %s", e.ExcludeFor,
				api.MaxSessionExclusion))
	}
	return m.finish(ctx, e.run(ctx))
}

// run moves page after page until the worker has no movable session.
func (e *evacuation) run(ctx workflow.Context) error {
	s, err := e.survey(ctx, "")
	if err != nil {
		return err
	}
	w, err := e.locate(s, e.Worker)
	if err != nil {
		return err
	}
	e.at = w.location
	if w.Host == "" || !w.State.Live() {
		e.Progress.Note = fmt.Sprintf("%s is %s: it has no process and no sessions", e.at.worker, w.State)
		return nil
	}
	excludeFor := api.DefaultSessionExclusion
	if e.ExcludeFor != nil {
		excludeFor = e.ExcludeFor.D()
	}
	if err := e.exclude(ctx, excludeFor+evacuationTimeout); err != nil {
		return err
	}
	err = e.transferPages(ctx, s)
	switch {
	case workflow.IsContinueAsNewError(err):
		return err
	case err != nil || ctx.Err() != nil:
		excludeFor = 0
	}
	lasting, _ := workflow.NewDisconnectedContext(ctx)
	if failed := e.exclude(lasting, excludeFor); err == nil {
		err = failed
	}
	return err
}

func (e *evacuation) exclude(ctx workflow.Context, d time.Duration) error {
	summary := fmt.Sprintf("exclude %s from new sessions for %s", e.at.worker, d)
	if d == 0 {
		summary = "allow sessions on " + e.at.worker + " again"
	}
	err := onHost(e.at.host, api.ActivityExcludeFromSessions, summary,
		api.ExcludeFromSessionsRequest{Worker: e.at.worker, For: spec.Duration(d)}).Execute(ctx).Get(ctx, nil)
	if err != nil {
		return stepError(summary, err)
	}
	return nil
}

// transferPages moves the worker's sessions in the order of their ids. It retries those that failed, as long as a pass
// has moved any.
func (e *evacuation) transferPages(ctx workflow.Context, s survey) (err error) {
	e.Progress.Total = max(e.Progress.Total, e.Progress.Moved+s.find(e.at.worker).sessions)
	for {
		if e.mayContinue(ctx, e.ContinueEvery) {
			return workflow.NewContinueAsNewError(ctx, api.WorkflowEvacuateWorker, *e.EvacuateRun)
		}
		if e.pages > 0 {
			if s, err = e.survey(ctx, ""); err != nil {
				return err
			}
		}
		e.pages++
		page, err := e.page(ctx, e.at, e.After, sessionPage)
		if err != nil {
			return err
		}
		if len(page.Page) > 0 {
			transfers, err := e.spread(s, page.Page)
			if err != nil {
				return err
			}
			e.transferAll(ctx, transfers)
			e.After = page.Page[len(page.Page)-1]
		}
		if ctx.Err() != nil {
			return nil
		}
		if page.More {
			continue
		}
		if e.Pass++; e.Progress.Skipped == 0 || e.Progress.Moved == e.Before || e.Pass == maxPasses {
			return nil
		}
		e.After, e.Before, e.Progress.Skipped, e.Progress.Skips = "", e.Progress.Moved, 0, nil
	}
}

// spread distributes a page evenly over the eligible workers.
func (e *evacuation) spread(s survey, sessions []string) (transfers []transfer, err error) {
	var takers []member
	var loads []policy.SessionLoad
	for _, w := range s.workers {
		if w.serves && !w.closed && w.Slot != e.Worker {
			takers, loads = append(takers, w), append(loads, policy.SessionLoad{Sessions: w.sessions})
		}
	}
	if len(takers) == 0 {
		return nil, failure.Refusal(api.Errorf(api.CodeNoWorkers,
			"no other worker of pool %s can take the sessions of %s; tempool ps %s shows why", e.Pool, e.at.worker, e.Pool))
	}
	for i, n := range policy.SpreadSessions(len(sessions), loads) {
		if n > 0 {
			transfers = append(transfers, transfer{from: []location{e.at}, to: takers[i].location, sessions: sessions[:n:n]})
			sessions = sessions[n:]
		}
	}
	return transfers, nil
}
