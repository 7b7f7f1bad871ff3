package sessions

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// location is a worker and the host of its process.
type location struct{ worker, host string }

// transfer moves sessions to one worker from the workers that they are bound to: one, or one on each host that a
// client's calls came through.
type transfer struct {
	from     []location
	to       location
	sessions []string
}

// stepTimeout bounds an activity that runs no hook.
const stepTimeout = 30 * time.Second

// onHost is an activity on a host. The activities are idempotent, so they are retried if an agent is lost; a host that
// does not take one in time fails it.
func onHost(host, name, summary string, input any) loop.Activity {
	activity := loop.OnHost(host, name, summary, stepTimeout, input)
	activity.WaitForCancellation, activity.Retry = true, &temporal.RetryPolicy{InitialInterval: time.Second,
		MaximumAttempts: 3}
	return activity
}

// transfer has the old workers release sessions, which unbinds them there unless the new worker is on the same host,
// and the new one receive them. Sessions that fail are restored, even when ctx is cancelled; skips lists them.
func (m *mover) transfer(ctx workflow.Context, c transfer) (moved []string, skips []api.SessionSkip) {
	going := c.sessions
	var done steps
	// lose removes the sessions that a step failed for, and restores them unless another workflow has moved them.
	lose := func(failures []api.SessionFailure) {
		var lost, back []string
		for _, f := range failures {
			if lost = append(lost, f.Session); f.Code != api.CodeSuperseded {
				back = append(back, f.Session)
			}
		}
		going = slices.DeleteFunc(slices.Clone(going), func(s string) bool { return slices.Contains(lost, s) })
		notUndone := m.undo(ctx, c, done, back)
		for _, f := range failures {
			skips = append(skips, api.SessionSkip{Session: f.Session, From: c.source(), To: c.to.worker, Code: f.Code,
				Reason: display.Shorten(f.Reason), NotUndone: notUndone})
		}
	}
	source := c.source() // as the new worker's host knows it
	for _, from := range c.from {
		result, err := m.step(ctx, api.ActivityReleaseSessions, from, api.SessionHooksRequest{Sessions: going,
			Timeout: m.hookTime, Unbind: from.host != c.to.host})
		failures := failuresOf(going, result.Failed, err)
		untouched := slices.DeleteFunc(slices.Clone(failures), mayHaveRun)
		lose(untouched) // they are restored by the workers before this one
		done.released = append(done.released, result.Called > 0 || len(untouched) < len(failures))
		lose(slices.DeleteFunc(failures, func(f api.SessionFailure) bool { return !mayHaveRun(f) }))
		if from.host == c.to.host {
			source = from.worker
		}
	}
	done.received = true
	result, err := m.step(ctx, api.ActivityReceiveSessions, c.to, api.SessionHooksRequest{Sessions: going,
		Timeout: m.hookTime, From: source})
	lose(failuresOf(going, result.Failed, err))
	return going, skips
}

// steps are those of a transfer that have begun.
type steps struct {
	released []bool // for each old worker that was asked, whether its hook ran or may have run
	received bool   // the new worker was asked
}

func (c transfer) source() string {
	if len(c.from) == 0 {
		return ""
	}
	return c.from[0].worker
}

// failuresOf are the failures of a step: by session, or the same for all sessions if the step itself failed.
func failuresOf(sessions []string, failures []api.SessionFailure, err error) []api.SessionFailure {
	if err == nil {
		return failures
	}
	for _, session := range sessions {
		failures = append(failures, api.SessionFailure{Session: session, Code: failure.CodeOf(err),
			Reason: failure.Reason(err)})
	}
	return failures
}

// stepError makes the failure of the workflow out of that of a step.
func stepError(what string, err error) error {
	return failure.Refusal(api.Errorf(failure.CodeOf(err), "%s: %s", what, failure.Reason(err)))
}

// mayHaveRun reports whether a hook that failed may have run.
func mayHaveRun(f api.SessionFailure) bool {
	return f.Code != api.CodeBusy && f.Code != api.CodeDraining
}

// undo binds sessions to their old workers again, which load again what they have released.
func (m *mover) undo(ctx workflow.Context, c transfer, done steps, sessions []string) (notUndone string) {
	lasting, _ := workflow.NewDisconnectedContext(ctx)
	arrived := done.received
	for i, released := range done.released {
		from := c.from[i]
		here := from.host == c.to.host
		if here && !released && !done.received {
			continue // it has them still
		}
		request := api.SessionHooksRequest{Sessions: sessions, From: c.to.worker}
		if released {
			request.Timeout = m.hookTime
		}
		result, err := m.step(lasting, api.ActivityReceiveSessions, from, request)
		failed := slices.DeleteFunc(result.Failed, func(f api.SessionFailure) bool { return f.Code == api.CodeSuperseded })
		switch {
		case err != nil && !done.received && failure.CodeOf(err) == api.CodeWorkerNotFound: // it has nothing to restore
		case err != nil && !done.received:
			notUndone = join(notUndone, from.worker+" did not load it again: "+display.Shorten(failure.Reason(err)))
		case err != nil:
			notUndone = join(notUndone, "it is no longer bound to "+from.worker+": "+display.Shorten(failure.Reason(err)))
		case len(failed) > 0:
			notUndone = join(notUndone, from.worker+" could not load it again: "+display.Shorten(failed[0].Reason))
		}
		arrived = arrived && (err != nil || !here)
	}
	if arrived {
		if _, err := m.step(lasting, api.ActivityReleaseSessions, c.to, api.SessionHooksRequest{Sessions: sessions,
			Unbind: true}); err != nil {
			notUndone = join(notUndone, "it may still be bound to "+c.to.worker+": "+display.Shorten(failure.Reason(err)))
		}
	}
	return notUndone
}

func join(a, b string) string {
	if a != "" && b != "" {
		return a + "; " + b
	}
	return a + b
}

// step executes one of the two activities that move sessions, unless there are none.
func (m *mover) step(ctx workflow.Context, name string, at location,
	request api.SessionHooksRequest) (result api.SessionHooksResult, err error) {
	if len(request.Sessions) == 0 {
		return result, nil
	}
	verb := "release"
	if name == api.ActivityReceiveSessions {
		verb = "receive"
	}
	request.Worker = at.worker
	activity := onHost(at.host, name, fmt.Sprintf("%s %s %s", at.worker, verb, describe(request.Sessions)), request)
	activity.StartToClose += time.Duration(len(request.Sessions)) * request.Timeout.D()
	activity.Heartbeat = api.HeartbeatTimeout
	err = activity.Execute(ctx).Get(ctx, &result)
	return result, err
}

func describe(sessions []string) string {
	if len(sessions) == 1 {
		return "session " + sessions[0]
	}
	return fmt.Sprintf("%d sessions", len(sessions))
}
