package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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

// ReleaseSessions calls the worker's session.release hook for each session, and unbinds those that it has released if
// r.Unbind is set. A worker whose process has ended has released them all.
func (s *Sessions) ReleaseSessions(ctx context.Context, r api.SessionHooksRequest) (api.SessionHooksResult, error) {
	result, err := s.runHooks(ctx, api.HookSessionRelease, r)
	switch {
	case err != nil && !errors.Is(err, api.ErrWorkerNotFound):
		return result, err
	case r.Unbind:
		s.unbind(r.Worker, slices.DeleteFunc(slices.Clone(r.Sessions), func(session string) bool {
			return slices.ContainsFunc(result.Failed, func(f api.SessionFailure) bool { return f.Session == session })
		}))
	}
	return result, nil
}

// ReceiveSessions binds sessions to the worker, and calls its session.load hook for each of them. If the worker has no
// ready process on this host, it fails with api.CodeWorkerNotFound and binds none.
func (s *Sessions) ReceiveSessions(ctx context.Context, r api.SessionHooksRequest) (api.SessionHooksResult, error) {
	notReady := nonRetryable(api.CodeWorkerNotFound, fmt.Sprintf("%s has no ready process on host %s", r.Worker, s.Host))
	if !s.HasReadyProcess(r.Worker) {
		return api.SessionHooksResult{}, notReady
	}
	pool := api.PoolOf(r.Worker)
	var moved []api.SessionFailure
	asked := r.Sessions
	r.Sessions = nil
	for _, session := range asked {
		if s.Move(pool, session, r.From, r.Worker) {
			r.Sessions = append(r.Sessions, session)
			continue
		}
		moved = append(moved, api.SessionFailure{
			Session: session, Code: api.CodeSuperseded, Reason: "moved to " + s.Bindings.Where(pool, session) + " meanwhile",
		})
	}
	// the process ended meanwhile, and its bindings may have been removed before these were made
	if !s.HasReadyProcess(r.Worker) {
		s.unbind(r.Worker, asked)
		return api.SessionHooksResult{}, notReady
	}
	result, err := s.runHooks(ctx, api.HookSessionLoad, r)
	if errors.Is(err, api.ErrWorkerNotFound) {
		err = nonRetryable(api.CodeWorkerNotFound,
			fmt.Sprintf("the process of %s ended before it could load sessions", r.Worker))
	}
	result.Failed = append(moved, result.Failed...)
	return result, err
}

// runHooks calls a hook for one session after the other, so that the worker serves calls in between. After a failure
// that would repeat for every session, it does not try the rest. It fails with api.CodeWorkerNotFound if the worker's
// process has ended.
func (s *Sessions) runHooks(ctx context.Context, hook string,
	r api.SessionHooksRequest) (result api.SessionHooksResult, err error) {
	if r.Timeout == 0 {
		return result, nil
	}
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
			return result, err
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

func (s *Sessions) unbind(worker string, sessions []string) {
	for _, session := range sessions {
		s.Bindings.Put(api.PoolOf(worker), session, "", func(bound string, _ bool) bool { return bound == worker })
	}
}

// ExcludeFromSessions prevents new bindings to a worker for r.For; 0 allows them again.
func (s *Sessions) ExcludeFromSessions(_ context.Context, r api.ExcludeFromSessionsRequest) error {
	s.Bindings.Close(r.Worker, r.For.D())
	return nil
}
