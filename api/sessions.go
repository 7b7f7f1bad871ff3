package api

import (
	"time"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// The messages of the session workflows and of their activities. A session is bound to a worker where the worker's host remembers that it
// served the session last.

// MigrateSessionRequest is the input of the workflow MigrateSession, whose result is SessionMoves. A session that is bound to no worker is
// only bound and loaded; one that is not in the store either is session_not_found. The workflow fails, with everything as it was, if a step
// fails.
type MigrateSessionRequest struct {
	Pool    string `json:"pool"`
	Session string `json:"session"`
	// To is the worker, POOL/SLOT.
	To string `json:"to"`
	// HookTimeout bounds each hook, waiting for its worker included; 0 is DefaultHookTimeout.
	HookTimeout spec.Duration `json:"hook_timeout,omitzero"`
}

// EvacuateRequest is the input of the pool's update evacuate, which starts the workflow EvacuateWorker: all sessions of the worker go to the
// pool's others, evenly.
type EvacuateRequest struct {
	Worker int `json:"worker"`
	// KeepOff is how long, from the end of the evacuation, calls with sessions bind none to the worker, unless its process ends before;
	// nil is DefaultSessionExclusion.
	KeepOff     *spec.Duration `json:"keep_off,omitempty"`
	HookTimeout spec.Duration  `json:"hook_timeout,omitzero"`
	Reason      string         `json:"reason,omitempty"`
	By          string         `json:"by,omitempty"`
}

// EvacuateStarted names the workflow that the update evacuate has started.
type EvacuateStarted struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// RebalanceSessionsRequest is the input of the workflow RebalanceSessions: the fewest sessions move that make the distribution what the
// weights say, to within one session for each worker.
type RebalanceSessionsRequest struct {
	Pool string `json:"pool"`
	// Weights are the workers' parts, by slot, relative to each other; one of weight 0 keeps none. A worker that is not named has 1, if none
	// is named, and else keeps what it has. Workers that do not serve, or that sessions are kept off, take no part unless they are named.
	Weights     map[int]int   `json:"weights,omitempty"`
	HookTimeout spec.Duration `json:"hook_timeout,omitzero"`
}

// Times of the session workflows, and the most that may be asked for.
const (
	DefaultHookTimeout      = 30 * time.Second
	MaxHookTimeout          = time.Hour
	DefaultSessionExclusion = 15 * time.Minute
	MaxSessionExclusion     = 24 * time.Hour
)

// SessionMoves is the result of a session workflow.
type SessionMoves struct {
	Pool string `json:"pool"`
	// Session is the one that was to migrate, Worker the one that was evacuated.
	Session string `json:"session,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Moved   int    `json:"moved"`
	// Flows say how many sessions went where. From is empty for a session that had no worker.
	Flows []SessionFlow `json:"flows"`
	// Skipped counts the sessions that are where they were, Skips names the first of them.
	Skipped int           `json:"skipped"`
	Skips   []SessionSkip `json:"skips,omitempty"`
	// Note says why nothing had to be done, where that is so.
	Note string `json:"note,omitempty"`
}

// SessionFlow is how many sessions went from one worker to another.
type SessionFlow struct {
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	Count int    `json:"count"`
}

// SessionSkip is one session that did not move.
type SessionSkip struct {
	Session string `json:"session"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Code    Code   `json:"code,omitempty"`
	Reason  string `json:"reason"`
	// NotUndone says what could not be put back as it was, when something could not.
	NotUndone string `json:"not_undone,omitempty"`
}

// SessionProgress answers the query progress.
type SessionProgress struct {
	// Total is how many are to move, as far as that is known.
	Total int `json:"total"`
	SessionMoves
}

// PoolRosterRequest asks for a pool's workers.
type PoolRosterRequest struct {
	Pool string `json:"pool"`
}

// PoolRosterResult is who is in a pool, by slot, as the pool last heard.
type PoolRosterResult struct {
	Size    int            `json:"size"`
	Workers []RosterWorker `json:"workers"`
}

// RosterWorker is one worker of a PoolRosterResult.
type RosterWorker struct {
	Slot  int             `json:"slot"`
	Host  string          `json:"host,omitempty"`
	State lifecycle.State `json:"state"`
	// Serves says that it is in service and to stay.
	Serves bool `json:"serves,omitempty"`
}

// SessionBindingsRequest asks a host which sessions of a pool are bound to its workers. Session asks for one session, Worker for a page
// of those of one worker.
type SessionBindingsRequest struct {
	Pool    string `json:"pool"`
	Session string `json:"session,omitempty"`
	Worker  string `json:"worker,omitempty"`
	After   string `json:"after,omitempty"`
	Limit   int    `json:"limit,omitempty"`
}

// SessionBindingsResult is what a host knows of its bindings.
type SessionBindingsResult struct {
	// Counts are the sessions bound to each worker that has any, Closed the workers that sessions are kept off.
	Counts map[string]int `json:"counts,omitempty"`
	Closed []string       `json:"closed,omitempty"`
	// Bound is the worker of the session that was asked for, "" for none; Unknown says that the host's store has no such session.
	Bound   string `json:"bound,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
	// Page are the ids that follow After, in their order; More says that there are others behind.
	Page []string `json:"page,omitempty"`
	More bool     `json:"more,omitempty"`
}

// SessionHooksRequest has a worker run a hook for each of some sessions.
type SessionHooksRequest struct {
	Worker   string        `json:"worker"`
	Sessions []string      `json:"sessions"`
	Timeout  spec.Duration `json:"timeout"` // of each
}

// SessionHooksResult is how the hooks went.
type SessionHooksResult struct {
	// Called counts the hooks that ran without an error; it is 0 for a worker that does not offer the hook.
	Called int `json:"called"`
	// Gone says that no process of the worker was there to be asked, or that it ended meanwhile.
	Gone   bool             `json:"gone,omitempty"`
	Failed []SessionFailure `json:"failed,omitempty"`
}

// SessionFailure is one session for which a step failed.
type SessionFailure struct {
	Session string `json:"session"`
	Code    Code   `json:"code"`
	Reason  string `json:"reason"`
}

// BindSessionsRequest binds sessions to the worker To on its host, as far as they are bound there to From, to nobody, or to To already.
type BindSessionsRequest struct {
	From     string   `json:"from,omitempty"`
	To       string   `json:"to"`
	Sessions []string `json:"sessions"`
}

// BindSessionsResult says which sessions are bound to another worker by now.
type BindSessionsResult struct {
	Failed []SessionFailure `json:"failed,omitempty"`
}

// UnbindSessionsRequest forgets, on a worker's host, sessions that are bound to it.
type UnbindSessionsRequest struct {
	Worker   string   `json:"worker"`
	Sessions []string `json:"sessions"`
}

// ExcludeFromSessionsRequest keeps further sessions off a worker, on its host, for so long or until its process ends; 0 lets them in again.
type ExcludeFromSessionsRequest struct {
	Worker string        `json:"worker"`
	For    spec.Duration `json:"for"`
}
