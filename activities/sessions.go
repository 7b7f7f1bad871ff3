package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
)

// Bindings are which worker of this host each session prefers.
type Bindings interface {
	Where(pool, session string) (worker string)
	Counts(pool string) map[string]int
	Closed(pool string) []string
	Page(worker, after string, limit int) (sessions []string, more bool)
	// Move binds a session to the worker to if it is bound to from, to nobody or there already.
	Move(pool, session, from, to string) bool
	UnbindFrom(pool, session, worker string)
	Close(worker string, lasting time.Duration)
}

// Hooks run a hook about a session on a worker of this host. called is false without an error for a worker that does not offer it. Errors
// are coded; worker_not_found says that no process of the worker is here.
type Hooks interface {
	CallHook(ctx context.Context, worker, hook, session string) (called bool, err error)
}

// Sessions holds the activities about sessions of one host. All of them may be repeated.
type Sessions struct {
	Host     string
	Bindings Bindings
	Hooks    Hooks
	// Lives reports whether the worker has a process here that is ready.
	HasReadyProcess func(worker string) bool
	// Kept is nil if the pool's store has the session, and session_not_found if it has not; with other errors that is not known.
	SessionExists func(ctx context.Context, pool, session string) error
}

// SessionBindings says which sessions are bound to workers of this host.
func (s *Sessions) SessionBindings(ctx context.Context, r api.SessionBindingsRequest) (api.SessionBindingsResult, error) {
	result := api.SessionBindingsResult{Counts: s.Bindings.Counts(r.Pool), Closed: s.Bindings.Closed(r.Pool)}
	if r.Session != "" {
		result.Bound = s.Bindings.Where(r.Pool, r.Session)
		result.Unknown = errors.Is(s.SessionExists(ctx, r.Pool, r.Session), api.ErrSessionNotFound)
	}
	if r.Worker != "" {
		result.Page, result.More = s.Bindings.Page(r.Worker, r.After, r.Limit)
	}
	return result, nil
}

// ReleaseSessions has a worker put what it keeps of sessions into them.
func (s *Sessions) ReleaseSessions(ctx context.Context, r api.SessionHooksRequest) (api.SessionHooksResult, error) {
	return s.runHooks(ctx, api.HookSessionRelease, r)
}

// LoadSessions has a worker warm up for sessions.
func (s *Sessions) LoadSessions(ctx context.Context, r api.SessionHooksRequest) (api.SessionHooksResult, error) {
	return s.runHooks(ctx, api.HookSessionLoad, r)
}

// runHooks runs a hook for one session after the other, so that the worker serves others between them. What would befall all that follow, too, is
// not tried with each.
func (s *Sessions) runHooks(ctx context.Context, hook string, r api.SessionHooksRequest) (result api.SessionHooksResult, err error) {
	defer startHeartbeat(ctx)()
	for i, session := range r.Sessions {
		called, err := s.runHook(ctx, hook, session, r)
		if ctx.Err() != nil {
			return result, contextEnded(ctx, hook+" on "+r.Worker)
		}
		switch {
		case err == nil && !called:
			return result, nil
		case err == nil:
			result.Called++
			continue
		case errors.Is(err, api.ErrWorkerNotFound):
			result.Gone = true
			return result, nil
		}
		result.Failed = append(result.Failed, toSessionFailure(session, err))
		if errors.Is(err, api.ErrBusy) || errors.Is(err, api.ErrDraining) || errors.Is(err, api.ErrUnavailable) {
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
	f := api.SessionFailure{Session: session, Code: api.CodeUnavailable, Reason: err.Error()}
	var coded *api.Error
	if errors.As(err, &coded) {
		f.Code, f.Reason = coded.Code, coded.Message
	}
	return f
}

// contextEnded is the end of an activity whose context has ended: it was cancelled, its time was over, or the agent stops.
func contextEnded(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return temporal.NewCanceledError(what + " was cut")
	}
	return fmt.Errorf("%s: %w", what, ctx.Err())
}

// BindSessions binds sessions to a worker. It fails as worker_not_found, and binds none, if no process of the worker is here; one that ends
// meanwhile takes its bindings with it.
func (s *Sessions) BindSessions(_ context.Context, r api.BindSessionsRequest) (result api.BindSessionsResult, err error) {
	pool, _, err := api.ParseWorkerName(r.To)
	if err != nil {
		return result, temporal.NewNonRetryableApplicationError(err.Error(), string(api.CodeInvalid), nil)
	}
	gone := func() error {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf("no process of %s is in service on host %s", r.To, s.Host), string(api.CodeWorkerNotFound), nil)
	}
	if !s.HasReadyProcess(r.To) {
		return result, gone()
	}
	for _, session := range r.Sessions {
		if !s.Bindings.Move(pool, session, r.From, r.To) {
			other := s.Bindings.Where(pool, session)
			result.Failed = append(result.Failed, api.SessionFailure{
				Session: session, Code: api.CodeSuperseded, Reason: fmt.Sprintf("it was moved to %s meanwhile", other),
			})
		}
	}
	if !s.HasReadyProcess(r.To) { // whoever forgets an ended worker's sessions may have been before
		for _, session := range r.Sessions {
			s.Bindings.UnbindFrom(pool, session, r.To)
		}
		return api.BindSessionsResult{}, gone()
	}
	return result, nil
}

// UnbindSessions forgets sessions that are bound to a worker of this host.
func (s *Sessions) UnbindSessions(_ context.Context, r api.UnbindSessionsRequest) error {
	pool, _, err := api.ParseWorkerName(r.Worker)
	if err != nil {
		return temporal.NewNonRetryableApplicationError(err.Error(), string(api.CodeInvalid), nil)
	}
	for _, session := range r.Sessions {
		s.Bindings.UnbindFrom(pool, session, r.Worker)
	}
	return nil
}

// ExcludeFromSessions keeps further sessions off a worker, or lets them in again.
func (s *Sessions) ExcludeFromSessions(_ context.Context, r api.ExcludeFromSessionsRequest) error {
	s.Bindings.Close(r.Worker, r.For.D())
	return nil
}
