package workflowtest

import (
	"time"

	"github.com/tempool/tempool/spec"
)

// step is something done to the worker at a time counted from the beginning.
type Step struct {
	At   time.Duration
	Do   func()
	Done bool
}

// stalled is how long a busy machine may leave a test waiting: the SDK takes a workflow task of a second of real time for a deadlock.
const Stalled = 2 * time.Minute

const Never = 10_000 * time.Hour

func TestSpec() spec.Spec {
	s := spec.Default()
	s.Pool.Name = "t"
	s.Pool.Command = []string{"true"}
	return s
}

// answer is what became of an update.
type UpdateAnswer struct {
	Rejected error
	Err      error
	Value    any
}

func (a *UpdateAnswer) Accept() {}

func (a *UpdateAnswer) Reject(e error) { a.Rejected = e }

func (a *UpdateAnswer) Complete(v any, e error) { a.Value, a.Err = v, e }
