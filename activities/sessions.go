package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions/affinity"
)

// Hooks calls the session hooks of the workers on this host.
type Hooks interface {
	// CallHook returns false and no error if the worker does not offer the hook. Its errors are coded;
	// api.CodeWorkerNotFound means that the worker has no process on this host.
	CallHook(ctx context.Context, worker, hook, session string) (called bool, err error)
}

// Sessions implements the activities about the sessions of one host. All of them are idempotent.
type Sessions struct {
	Host     string
	Bindings *affinity.Table
	Hooks    Hooks
	Temporal HeartbeatClient
	// Move binds a session to the worker to, if it is bound to from, to no worker, or to that worker already.
	Move func(pool, session, from, to string) bool
	// HasReadyProcess reports whether the worker has a ready process on this host.
	HasReadyProcess func(worker string) bool
	// SessionExists returns nil if the pool's store has the session, and api.ErrSessionNotFound if it has not. Any other
	// error means that the store did not answer.
	SessionExists func(ctx context.Context, pool, session string) error
}

// SessionBindings returns which sessions are bound to workers of this host.
func (s *Sessions) SessionBindings(ctx context.Context,
	r api.SessionBindingsRequest) (api.SessionBindingsResult, error) {
	result := api.SessionBindingsResult{Counts: s.Bindings.Counts(r.Pool), Excluded: s.Bindings.Closed(r.Pool)}
	if r.Session != "" {
		result.Bound = s.Bindings.Where(r.Pool, r.Session)
		result.Unknown = errors.Is(s.SessionExists(ctx, r.Pool, r.Session), api.ErrSessionNotFound)
	}
	if r.Worker != "" {
		page, more := s.Bindings.Bindings(r.Pool, r.Worker, r.After, r.Limit)
		for _, b := range page {
			result.Page = append(result.Page, b.Session)
		}
		result.More = more
	}
	return result, nil
}

// ReleaseSessions calls the worker's session.release hook for each session.
func (s *Sessions) ReleaseSessions(ctx context.Context, r api.SessionHooksRequest) (api.SessionHooksResult, error) {
	return s.runHooks(ctx, api.HookSessionRelease, r)
}

// LoadSessions calls the worker's session.load hook for each session.
func (s *Sessions) LoadSessions(ctx context.Context, r api.SessionHooksRequest) (api.SessionHooksResult, error) {
	return s.runHooks(ctx, api.HookSessionLoad, r)
}

// runHooks calls a hook for one session after the other, so that the worker serves calls in between. After a failure
// that would repeat for every session, it does not try the rest.
func (s *Sessions) runHooks(ctx context.Context, hook string,
	r api.SessionHooksRequest) (result api.SessionHooksResult, err error) {
	defer startHeartbeat(ctx, s.Temporal)()
	for i, session := range r.Sessions {
		called, err := s.runHook(ctx, hook, session, r)
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return result, temporal.NewCanceledError(hook + " on " + r.Worker + " was cancelled")
		case ctx.Err() != nil:
			return result, fmt.Errorf("%s on %s: %w", hook, r.Worker, ctx.Err())
		case err == nil && !called:
			return result, nil
		case err == nil:
			result.Called++
			continue
		case errors.Is(err, api.ErrWorkerNotFound):
			result.ProcessEnded = true
			return result, nil
		}
		result.Failed = append(result.Failed, toSessionFailure(session, err))
		switch api.CodeOf(err) {
		case api.CodeBusy, api.CodeDraining, api.CodeSuspended, api.CodeUnavailable:
			for _, untried := range r.Sessions[i+1:] {
				result.Failed = append(result.Failed, toSessionFailure(untried, err))
			}
			return result, nil
		}
	}
	return result, nil
}

func (s *Sessions) runHook(ctx context.Context, hook, session string, r api.SessionHooksRequest) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout.D())
	defer cancel()
	return s.Hooks.CallHook(ctx, r.Worker, hook, session)
}

func toSessionFailure(session string, err error) api.SessionFailure {
	return api.SessionFailure{Session: session, Code: cmp.Or(api.CodeOf(err), api.CodeUnavailable),
		Reason: api.MessageOf(err)}
}

// BindSessions binds sessions to a worker. If the worker has no ready process on this host, it fails with
// api.CodeWorkerNotFound and binds none.
func (s *Sessions) BindSessions(_ context.Context,
	r api.BindSessionsRequest) (result api.BindSessionsResult, err error) {
	pool, _, err := api.ParseWorkerName(r.To)
	if err != nil {
		return result, nonRetryable(api.CodeInvalid, err.Error())
	}
	notReady := nonRetryable(api.CodeWorkerNotFound, fmt.Sprintf("%s has no ready process on host %s", r.To, s.Host))
	if !s.HasReadyProcess(r.To) {
		return result, notReady
	}
	for _, session := range r.Sessions {
		if !s.Move(pool, session, r.From, r.To) {
			result.Failed = append(result.Failed, api.SessionFailure{
				Session: session, Code: api.CodeSuperseded, Reason: "moved to " + s.Bindings.Where(pool, session) + " meanwhile",
			})
		}
	}
	// the process ended meanwhile, and its bindings may have been removed before these were made
	if !s.HasReadyProcess(r.To) {
		s.unbind(pool, r.To, r.Sessions)
		return api.BindSessionsResult{}, notReady
	}
	return result, nil
}

// UnbindSessions removes the bindings of sessions to a worker of this host.
func (s *Sessions) UnbindSessions(_ context.Context, r api.UnbindSessionsRequest) error {
	pool, _, err := api.ParseWorkerName(r.Worker)
	if err != nil {
		return nonRetryable(api.CodeInvalid, err.Error())
	}
	s.unbind(pool, r.Worker, r.Sessions)
	return nil
}

func (s *Sessions) unbind(pool, worker string, sessions []string) {
	for _, session := range sessions {
		s.Bindings.Put(pool, session, "", func(bound string, _ bool) bool { return bound == worker })
	}
}

// ExcludeFromSessions prevents new bindings to a worker for r.For; 0 allows them again.
func (s *Sessions) ExcludeFromSessions(_ context.Context, r api.ExcludeFromSessionsRequest) error {
	s.Bindings.Close(r.Worker, r.For.D())
	return nil
}
