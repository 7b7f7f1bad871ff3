package sessions

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/failure"
)

// Migrate moves one session to a worker. If a step fails, or the workflow is cancelled, everything is undone, and the
// workflow fails with the code of the failure and a SessionSkip as its detail.
func Migrate(ctx workflow.Context, in api.MigrateSessionRequest) (api.SessionMoves, error) {
	progress := &api.SessionProgress{Total: 1, SessionMoves: api.SessionMoves{Session: in.Session}}
	m, err := newMover(ctx, in.Pool, fmt.Sprintf("migrating session %s to %s", in.Session, in.To), in.HookTimeout.D(),
		progress)
	if err != nil {
		return progress.SessionMoves, err
	}
	to, from, err := m.resolve(ctx, in)
	if err != nil || ctx.Err() != nil {
		return m.finish(ctx, err)
	}
	if len(from) == 1 && from[0] == to {
		progress.Total, progress.Note = 0, fmt.Sprintf("it is already bound to %s", to.worker)
		return m.finish(ctx, nil)
	}
	from = slices.DeleteFunc(from, func(p location) bool { return p == to })
	m.transferAll(ctx, []transfer{{from: from, to: to, sessions: []string{in.Session}}})
	if progress.Moved == 1 {
		m.showProgress(ctx, "done")
		return progress.SessionMoves, nil
	}
	m.showProgress(ctx, "undone")
	if ctx.Err() != nil {
		return progress.SessionMoves, temporal.NewCanceledError(progress.SessionMoves)
	}
	if len(progress.Skips) == 0 {
		return progress.SessionMoves, failure.Refusal(api.Errorf(api.CodeSuperseded,
			"another workflow moved session %s in the meantime", in.Session))
	}
	skip := progress.Skips[0]
	message := fmt.Sprintf("session %s did not move to %s, everything undone: %s", in.Session, in.To, skip.Reason)
	if skip.NotUndone != "" {
		message = fmt.Sprintf("session %s did not move to %s: %s; not undone: %s", in.Session, in.To, skip.Reason,
			skip.NotUndone)
	}
	return progress.SessionMoves, temporal.NewApplicationErrorWithOptions(message, string(skip.Code),
		temporal.ApplicationErrorOptions{
			NonRetryable: true, Details: []any{skip},
		})
}

// resolve finds the target of the session, and the workers it is bound to.
func (m *mover) resolve(ctx workflow.Context, in api.MigrateSessionRequest) (to location, from []location, err error) {
	pool, slot, err := api.ParseWorkerName(in.To)
	switch {
	case err != nil || pool != in.Pool:
		return to, nil, failure.Refusal(api.Errorf(api.CodeInvalid, "%q is not a worker of pool %s; write %s/SLOT", in.To,
			in.Pool, in.Pool))
	case in.Session == "":
		return to, nil, failure.Refusal(api.Errorf(api.CodeInvalid, "session is empty"))
	}
	s, err := m.survey(ctx, in.Session)
	if err != nil {
		return to, nil, err
	}
	w, err := m.locate(s, slot)
	switch {
	case err != nil:
		return to, nil, err
	case !w.serves:
		return to, nil, failure.Refusal(api.Errorf(api.CodeNoWorkers,
			"%s is %s and takes no sessions now; choose another worker, or wait until it serves", in.To, w.State))
	}
	if len(s.bound) == 0 && s.unknown {
		return to, nil, failure.Refusal(api.Errorf(api.CodeSessionNotFound,
			"pool %s has no session %s, and none of its workers has served it recently", in.Pool, in.Session))
	}
	return w.location, s.bound, nil
}
