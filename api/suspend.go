package api

import "github.com/tempool/tempool/spec"

// SuspendRequest takes an incarnation out of service and keeps its process. No call starts on it from then on; those in
// flight, and the holder of a lease, have Timeout to end.
type SuspendRequest struct {
	Process
	// Generation grows with each suspension and resumption of the worker; a host ignores a request that is older than one
	// it has seen.
	Generation int64 `json:"generation"`
	// LeaseID is the lease that counts, "" if there is none. It lasts until Timeout is over.
	LeaseID string        `json:"lease_id,omitempty"`
	Timeout spec.Duration `json:"timeout"`
	// HookTimeout is how long the program's hook HookSuspend may take, if it has one.
	HookTimeout spec.Duration `json:"hook_timeout,omitempty"`
	Reason      string        `json:"reason,omitempty"`
}

// SuspendResult is the end of a SuspendRequest. Unless it was Withdrawn, no call is in flight and the lease has ended.
type SuspendResult struct {
	// Withdrawn says that a later request has taken this one's place.
	Withdrawn bool `json:"withdrawn,omitempty"`
	FencedLease
	// Problem is what did not work: the hook failed or takes longer than it may, or the tree could not be frozen.
	Problem string `json:"problem,omitempty"`
	// Frozen says that the whole process tree is stopped, as the spec's pool.on_suspend says.
	Frozen bool `json:"frozen,omitempty"`
}

// FencedLease is the lease that a host has ended for a suspension.
type FencedLease struct {
	// LeaseID is the lease, "" if there was none.
	LeaseID string `json:"lease_id,omitempty"`
	// CallsCut counts the calls that were in flight under it.
	CallsCut int `json:"calls_cut,omitempty"`
	// Checkin returns it with its usage; nil if the gateway does not know the lease.
	Checkin *CheckinRequest `json:"checkin,omitempty"`
}

// Suspension is what a host remembers of a suspension, for a repetition of the order whose result nobody got, and for
// the next agent.
type Suspension struct {
	Generation int64  `json:"generation"`
	Reason     string `json:"reason,omitempty"`
	// Ended says that a ResumeRequest has ended it.
	Ended bool `json:"ended,omitempty"`
	// Hooked says that the program's hook was called, and HookReturned that it has returned, with Problem.
	Hooked       bool   `json:"hooked,omitempty"`
	HookReturned bool   `json:"hook_returned,omitempty"`
	Problem      string `json:"problem,omitempty"`
	FencedLease
}

// ResumeRequest ends a suspension, even one that has not taken effect.
type ResumeRequest struct {
	Process
	Generation int64 `json:"generation"` // see SuspendRequest
	// Suspended says that the suspension had taken effect, so that the program's hook HookResume runs, if it has one, for
	// HookTimeout.
	Suspended   bool          `json:"suspended,omitempty"`
	HookTimeout spec.Duration `json:"hook_timeout,omitempty"`
}

// ResumeResult is the end of a ResumeRequest. Problem is why the hook failed. FencedLease is that of a suspension which
// had not taken effect.
type ResumeResult struct {
	Problem string `json:"problem,omitempty"`
	FencedLease
}
