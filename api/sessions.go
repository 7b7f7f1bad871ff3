package api

import (
	"time"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// MigrateSessionRequest is the input of the workflow MigrateSession, whose result is SessionMoves. A session is bound
// to the worker that served it last, as that worker's host records. A session without a binding is only bound and
// loaded; one that is not in the store either is session_not_found. If a step fails, the workflow undoes the others and
// fails.
type MigrateSessionRequest struct {
	Pool    string `json:"pool"`
	Session string `json:"session"`
	// To is the worker, POOL/SLOT.
	To string `json:"to"`
	// HookTimeout bounds each hook, its wait for the worker included; 0 is DefaultHookTimeout.
	HookTimeout spec.Duration `json:"hook_timeout,omitzero"`
}

// EvacuateRequest is the input of the pool's update evacuate, which starts the workflow EvacuateWorker: it moves all
// sessions of the worker to the pool's other workers, evenly.
type EvacuateRequest struct {
	Worker int `json:"worker"`
	// ExcludeFor is how long after the evacuation no session is bound to the worker, unless its process ends first; nil is
	// DefaultSessionExclusion.
	ExcludeFor  *spec.Duration `json:"exclude_for,omitempty"`
	HookTimeout spec.Duration  `json:"hook_timeout,omitzero"`
	Reason      string         `json:"reason,omitempty"`
	By          string         `json:"by,omitempty"`
}

// EvacuateStarted names the workflow that the update evacuate started.
type EvacuateStarted struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// RebalanceSessionsRequest is the input of the workflow RebalanceSessions: it moves the fewest sessions that make the
// distribution match the weights, to within one session for each worker.
type RebalanceSessionsRequest struct {
	Pool string `json:"pool"`
	// Weights are the workers' relative shares by slot; weight 0 means no session. Without any weights every worker has
	// weight 1; otherwise a worker that is not listed keeps its sessions. Workers that are out of service or excluded from
	// sessions take part only if listed.
	Weights     map[int]int   `json:"weights,omitempty"`
	HookTimeout spec.Duration `json:"hook_timeout,omitzero"`
}

// Defaults and upper bounds of the session workflows.
const (
	DefaultHookTimeout      = 30 * time.Second
	MaxHookTimeout          = time.Hour
	DefaultSessionExclusion = 15 * time.Minute
	MaxSessionExclusion     = 24 * time.Hour
)

// SessionMoves is the result of a session workflow.
type SessionMoves struct {
	Pool string `json:"pool"`
	// Session is the migrated session, Worker the evacuated worker.
	Session string `json:"session,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Moved   int    `json:"moved"`
	// Flows count the moved sessions by origin and destination.
	Flows []SessionFlow `json:"flows"`
	// Skipped counts the sessions that were not moved; Skips lists the first of them.
	Skipped int           `json:"skipped"`
	Skips   []SessionSkip `json:"skips,omitempty"`
	// Note is why there was nothing to do, if so.
	Note string `json:"note,omitempty"`
}

// SessionFlow counts the sessions that moved from one worker to another; From is empty for sessions without a worker.
type SessionFlow struct {
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	Count int    `json:"count"`
}

// SessionSkip is one session that was not moved.
type SessionSkip struct {
	Session string `json:"session"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Code    Code   `json:"code,omitempty"`
	Reason  string `json:"reason"`
	// NotUndone is what could not be undone, if anything.
	NotUndone string `json:"not_undone,omitempty"`
}

// SessionProgress answers the query progress.
type SessionProgress struct {
	// Total is the number of sessions to move, as far as known.
	Total int `json:"total"`
	SessionMoves
}

// PoolRosterRequest asks for a pool's workers.
type PoolRosterRequest struct {
	Pool string `json:"pool"`
}

// PoolRosterResult lists the workers of a pool by slot, as last reported to the pool.
type PoolRosterResult struct {
	Workers []RosterWorker `json:"workers"`
}

// RosterWorker is one worker of a PoolRosterResult.
type RosterWorker struct {
	Slot  int             `json:"slot"`
	Host  string          `json:"host,omitempty"`
	State lifecycle.State `json:"state"`
	// Serves says that the worker is in service and will stay.
	InService bool `json:"in_service,omitempty"`
}

// SessionBindingsRequest asks a host which sessions of a pool are bound to its workers. Session selects one session,
// Worker a page of one worker's sessions.
type SessionBindingsRequest struct {
	Pool    string `json:"pool"`
	Session string `json:"session,omitempty"`
	Worker  string `json:"worker,omitempty"`
	After   string `json:"after,omitempty"`
	Limit   int    `json:"limit,omitempty"`
}

// SessionBindingsResult lists a host's bindings.
type SessionBindingsResult struct {
	// Counts are the numbers of sessions bound to each worker; Closed lists the workers that are excluded from sessions.
	Counts   map[string]int `json:"counts,omitempty"`
	Excluded []string       `json:"excluded,omitempty"`
	// Bound is the worker of the requested session, "" for none; Unknown says that the host's store has no such session.
	Bound   string `json:"bound,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
	// Page are the ids after After, in order; More says that further ids follow.
	Page []string `json:"page,omitempty"`
	More bool     `json:"more,omitempty"`
}

// SessionHooksRequest runs a hook of a worker for each of the sessions.
type SessionHooksRequest struct {
	Worker   string        `json:"worker"`
	Sessions []string      `json:"sessions"`
	Timeout  spec.Duration `json:"timeout"` // for each hook
}

// SessionHooksResult reports the hooks that ran.
type SessionHooksResult struct {
	// Called counts the hooks that succeeded; it is 0 for a worker without the hook.
	Called int `json:"called"`
	// Gone says that the worker had no process, or that the process ended meanwhile.
	ProcessEnded bool             `json:"process_ended,omitempty"`
	Failed       []SessionFailure `json:"failed,omitempty"`
}

// SessionFailure is one session for which a step failed.
type SessionFailure struct {
	Session string `json:"session"`
	Code    Code   `json:"code"`
	Reason  string `json:"reason"`
}

// BindSessionsRequest binds sessions to the worker To on its host, if they are bound there to From, to no worker, or to
// To already.
type BindSessionsRequest struct {
	From     string   `json:"from,omitempty"`
	To       string   `json:"to"`
	Sessions []string `json:"sessions"`
}

// BindSessionsResult lists the sessions that are bound to another worker by now.
type BindSessionsResult struct {
	Failed []SessionFailure `json:"failed,omitempty"`
}

// UnbindSessionsRequest removes bindings of sessions to a worker on its host.
type UnbindSessionsRequest struct {
	Worker   string   `json:"worker"`
	Sessions []string `json:"sessions"`
}

// ExcludeFromSessionsRequest excludes a worker from new sessions on its host for a time, at most until its process
// ends; 0 ends the exclusion.
type ExcludeFromSessionsRequest struct {
	Worker string        `json:"worker"`
	For    spec.Duration `json:"for"`
}

// SessionBinding is the worker that serves a session's calls if it is free. It is a preference: any worker can serve
// any session.
type SessionBinding struct {
	Session string `json:"session"`
	Worker  string `json:"worker,omitempty"` // POOL/N; "" for none
}

// SessionBindings is a page of the bindings of one host to its workers, by session. Next is the session after which the
// next page begins, "" on the last.
type SessionBindings struct {
	Bindings []SessionBinding `json:"bindings"`
	Next     string           `json:"next"`
}

// MaxBindingsPage is the largest page of bindings.
const MaxBindingsPage = 1000

// BindRequest binds a session to a worker of the gateway's host.
type BindRequest struct {
	Worker string `json:"worker"` // POOL/N
}
