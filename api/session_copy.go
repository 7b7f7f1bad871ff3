package api

import "time"

// CopyPhase is the phase of a copy of sessions from store to store.
type CopyPhase string

// Phases of a copy, in order. CopyNone is the phase before and after a copy.
const (
	CopyNone    CopyPhase = "none"
	CopyCopying CopyPhase = "copying"  // the first store is primary; the second may lack sessions
	CopyInSync  CopyPhase = "in_sync"  // the first store is primary; a comparison found the second one equal
	CopyCutOver CopyPhase = "cut_over" // the second store is primary; the first one follows
)

// CopyStep is an operator's command to a copy.
type CopyStep string

// Steps of a copy.
const (
	CopyStepCutOver CopyStep = "cut-over" // the second store becomes primary
	CopyStepBack    CopyStep = "back"     // the first store becomes primary again
	CopyStepFinish  CopyStep = "finish"   // the second store stays primary; writes to the first one end
	CopyStepCancel  CopyStep = "cancel"   // the first store stays primary; writes to the second one end
)

// SessionCopyRequest starts a copy.
type SessionCopyRequest struct {
	// From is the current store of the pool's sessions, as a safeguard; To is the new one. Each is "embedded" or the URL
	// of a Redis server.
	From string `json:"from"`
	To   string `json:"to"`
	// Replace deletes the sessions of a second store that has any. Without it such a store is rejected.
	Replace bool `json:"replace,omitempty"`
}

// SessionCopyStep requests a step. Force steps back even if the second store does not answer.
type SessionCopyStep struct {
	Step  CopyStep `json:"step"`
	Force bool     `json:"force,omitempty"`
}

// SessionCopy is the status of a copy of sessions from store to store. With CopyNone all fields but Host are empty.
type SessionCopy struct {
	Phase CopyPhase `json:"phase"`
	// Host is the host whose agent copies.
	Host string `json:"host"`
	// From and To are the two stores, without passwords.
	From  string    `json:"from,omitempty"`
	To    string    `json:"to,omitempty"`
	Began time.Time `json:"began,omitzero"`
	// InSync says that the last comparison found both stores equal and no write failed since.
	InSync bool `json:"in_sync"`
	// Pending counts the sessions whose last change or use may be missing in the other store.
	Pending int `json:"pending"`
	// Problem is why the other store does not follow now; the agent retries. In the answer to CopyStepFinish it says that
	// not all pools could be checked.
	Problem string `json:"problem,omitempty"`
	// Comparing is the running comparison, Compared the last finished one.
	Comparing *SessionComparison `json:"comparing,omitempty"`
	Compared  *SessionComparison `json:"compared,omitempty"`
	// Lost counts the sessions whose last change a step with Force discarded.
	Lost int `json:"lost,omitempty"`
}

// SessionComparison compares all sessions of both stores and corrects the other store. The first one of a copy does the
// copying.
type SessionComparison struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Sessions counts the primary store's sessions at the start, Compared the sessions compared so far.
	Sessions int `json:"sessions"`
	Compared int `json:"compared"`
	// Missing, Different and Extra count the sessions that the other store lacked, had with other content, or had in
	// excess; all of them were corrected. Sessions in use at that moment do not count.
	Missing   int `json:"missing"`
	Different int `json:"different"`
	Extra     int `json:"extra"`
}

// Equal reports whether nothing had to be corrected.
func (c *SessionComparison) Equal() bool { return c.Missing+c.Different+c.Extra == 0 }
