package sessions

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
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
	activity.WaitForCancellation, activity.RetryPolicy = true, &temporal.RetryPolicy{InitialInterval: time.Second,
		MaximumAttempts: 3}
	return activity
}

// transfer releases sessions on their old workers, binds them to the new one, and loads them there. Sessions that fail
// are restored, even when ctx is cancelled; skips lists them.
func (m *mover) transfer(ctx workflow.Context, c transfer) (moved []string, skips []api.SessionSkip) {
	going := c.sessions
	released := make([]bool, len(c.from)) // whether the worker's hook ran or may have run
	// lose removes the sessions that a step failed for; undo restores them.
	lose := func(failures []api.SessionFailure, undo func([]string) string) {
		if len(failures) == 0 {
			return
		}
		var lost []string
		for _, f := range failures {
			lost = append(lost, f.Session)
		}
		going = slices.DeleteFunc(slices.Clone(going), func(s string) bool { return slices.Contains(lost, s) })
		notUndone := undo(lost)
		for _, f := range failures {
			skips = append(skips, api.SessionSkip{Session: f.Session, From: c.source(), To: c.to.worker, Code: f.Code,
				Reason: display.Shorten(f.Reason), NotUndone: notUndone})
		}
	}
	reload := func(lost []string) string { return m.reload(ctx, c, released, lost) }
	back := func(lost []string) string { return m.rebind(ctx, c, released, lost) }
	none := func([]string) string { return "" }

	for i, from := range c.from {
		result, err := m.hook(ctx, api.ActivityReleaseSessions, from, going)
		failures := failuresOf(going, result.Failed, err)
		untouched := slices.DeleteFunc(slices.Clone(failures), mayHaveRun)
		lose(untouched, reload) // by the workers before this one
		released[i] = result.Called > 0 || len(untouched) < len(failures)
		lose(slices.DeleteFunc(failures, func(f api.SessionFailure) bool { return !mayHaveRun(f) }), reload)
	}
	if len(going) > 0 {
		failures, err := bind(ctx, c, going)
		if err != nil {
			lose(failuresOf(going, nil, err), back)
		}
		lose(failures, none) // another workflow has moved them meanwhile
	}
	for _, from := range c.from {
		if from.host == c.to.host || len(going) == 0 {
			continue
		}
		lose(failuresOf(going, nil, unbind(ctx, from, going)), back)
	}
	if len(going) > 0 {
		result, err := m.hook(ctx, api.ActivityLoadSessions, c.to, going)
		if err == nil && result.ProcessEnded {
			err = failure.Refusal(api.Errorf(api.CodeWorkerNotFound, "the process of %s ended before it could load sessions",
				c.to.worker))
		}
		lose(failuresOf(going, result.Failed, err), back)
	}
	return going, skips
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

// reload makes the old workers load again what they have released.
func (m *mover) reload(ctx workflow.Context, c transfer, released []bool, sessions []string) (notUndone string) {
	lasting, _ := workflow.NewDisconnectedContext(ctx)
	for i, from := range c.from {
		if !released[i] {
			continue
		}
		result, err := m.hook(lasting, api.ActivityLoadSessions, from, sessions)
		switch {
		case err != nil:
			notUndone = join(notUndone, from.worker+" did not load it again: "+display.Shorten(failure.Reason(err)))
		case len(result.Failed) > 0:
			notUndone = join(notUndone, from.worker+" could not load it again: "+display.Shorten(result.Failed[0].Reason))
		}
	}
	return notUndone
}

// rebind binds sessions to their old workers again, which load them.
func (m *mover) rebind(ctx workflow.Context, c transfer, released []bool, sessions []string) (notUndone string) {
	lasting, _ := workflow.NewDisconnectedContext(ctx)
	unbound := false // on the new worker's host
	for _, from := range c.from {
		_, err := bind(lasting, transfer{from: []location{c.to}, to: from}, sessions)
		if err != nil {
			notUndone = join(notUndone, "it is no longer bound to "+from.worker+": "+display.Shorten(failure.Reason(err)))
		}
		unbound = unbound || err == nil && from.host == c.to.host
	}
	if !unbound {
		if err := unbind(lasting, c.to, sessions); err != nil {
			notUndone = join(notUndone, "it may still be bound to "+c.to.worker+": "+display.Shorten(failure.Reason(err)))
		}
	}
	return join(notUndone, m.reload(ctx, c, released, sessions))
}

func join(a, b string) string {
	if a != "" && b != "" {
		return a + "; " + b
	}
	return a + b
}

func (m *mover) hook(ctx workflow.Context, name string, at location,
	sessions []string) (result api.SessionHooksResult, err error) {
	if len(sessions) == 0 {
		return result, nil
	}
	verb := "release"
	if name == api.ActivityLoadSessions {
		verb = "load"
	}
	activity := onHost(at.host, name, fmt.Sprintf("%s %s %s", at.worker, verb, describe(sessions)),
		api.SessionHooksRequest{Worker: at.worker, Sessions: sessions, Timeout: spec.Duration(m.hookTime)})
	activity.StartToCloseTimeout += time.Duration(len(sessions)) * m.hookTime
	activity.HeartbeatTimeout = api.HeartbeatTimeout
	err = activity.Execute(ctx).Get(ctx, &result)
	return result, err
}

func bind(ctx workflow.Context, c transfer, sessions []string) ([]api.SessionFailure, error) {
	var result api.BindSessionsResult
	from := c.source()
	for _, old := range c.from {
		if old.host == c.to.host {
			from = old.worker
		}
	}
	err := onHost(c.to.host, api.ActivityBindSessions, fmt.Sprintf("bind %s to %s", describe(sessions), c.to.worker),
		api.BindSessionsRequest{From: from, To: c.to.worker, Sessions: sessions}).Execute(ctx).Get(ctx, &result)
	return result.Failed, err
}

func unbind(ctx workflow.Context, at location, sessions []string) error {
	return onHost(at.host, api.ActivityUnbindSessions, fmt.Sprintf("unbind %s from %s", describe(sessions), at.worker),
		api.UnbindSessionsRequest{Worker: at.worker, Sessions: sessions}).Execute(ctx).Get(ctx, nil)
}

func describe(sessions []string) string {
	if len(sessions) == 1 {
		return "session " + sessions[0]
	}
	return fmt.Sprintf("%d sessions", len(sessions))
}
