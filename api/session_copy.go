package api

import "time"

// CopyPhase says how far a copy of sessions from store to store has come.
type CopyPhase string

// Phases of a copy, in their order. Before and after all of them there is none.
const (
	CopyNone    CopyPhase = "none"
	CopyCopying CopyPhase = "copying"  // the first store is the truth, the second one is not known to have it all
	CopyInStep  CopyPhase = "in_step"  // the first store is the truth, and a comparison found the second one equal
	CopyCutOver CopyPhase = "cut_over" // the second store is the truth, and the first one follows
)

// CopyStep is what an operator asks of a copy.
type CopyStep string

// Steps of a copy.
const (
	CopyStepCutOver CopyStep = "cut-over" // the second store becomes the truth
	CopyStepBack    CopyStep = "back"     // the first store becomes the truth again
	CopyStepFinish  CopyStep = "finish"   // the second store stays the truth, and the first one is written no more
	CopyStepCancel  CopyStep = "cancel"   // the first store stays the truth, and the second one is written no more
)

// SessionCopyRequest begins a copy.
type SessionCopyRequest struct {
	// From is the store that the pool's sessions are in, so that nobody moves another than they think; To is the one they are to be in.
	// Each is "embedded" or the URL of a Redis server.
	From string `json:"from"`
	To   string `json:"to"`
	// Replace allows a second store that has sessions; they are deleted. Without it such a store is refused.
	Replace bool `json:"replace,omitempty"`
}

// SessionCopyStep asks for a step. Force goes back although the second store does not answer.
type SessionCopyStep struct {
	Step  CopyStep `json:"step"`
	Force bool     `json:"force,omitempty"`
}

// SessionCopy is how a copy of sessions from store to store stands. With CopyNone all else is empty but Host.
type SessionCopy struct {
	Phase CopyPhase `json:"phase"`
	// Host is the one whose agent copies.
	Host string `json:"host"`
	// From and To are the two stores, without passwords.
	From  string    `json:"from,omitempty"`
	To    string    `json:"to,omitempty"`
	Began time.Time `json:"began,omitzero"`
	// InStep says that the last comparison found both stores equal, and that nothing failed since.
	InStep bool `json:"in_step"`
	// Pending counts the sessions whose last change or use only the store that is the truth is known to have.
	Pending int `json:"pending"`
	// Problem is why the other store does not follow at the moment; it is tried again all the time.
	Problem string `json:"problem,omitempty"`
	// Comparing is the comparison that goes on, Compared the last one that came to its end.
	Comparing *SessionComparison `json:"comparing,omitempty"`
	Compared  *SessionComparison `json:"compared,omitempty"`
	// Lost counts the sessions whose last change was given up by a step with Force.
	Lost int `json:"lost,omitempty"`
}

// SessionComparison is one look at all sessions of both stores. The first one of a copy is what copies.
type SessionComparison struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Sessions are those of the truth when it began, and Compared how many of all have been looked at.
	Sessions int `json:"sessions"`
	Compared int `json:"compared"`
	// Missing, Different and Extra count what the other store did not have, had otherwise, and had too much; all of it was put right. A
	// session that was changed or used in that moment counts as none of them.
	Missing   int `json:"missing"`
	Different int `json:"different"`
	Extra     int `json:"extra"`
}

// Equal reports whether nothing had to be put right.
func (c *SessionComparison) Equal() bool { return c.Missing+c.Different+c.Extra == 0 }
