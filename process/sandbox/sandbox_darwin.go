package sandbox

import (
	"errors"
	"syscall"
)

// Attach does nothing: Enter fails later.
func (s Sandbox) Attach(*syscall.SysProcAttr) {}

// Open returns nothing: Enter has failed.
func (s Sandbox) Open(int) (Namespaces, error) { return nil, nil }

// Explain returns err.
func (s Sandbox) Explain(err error) error { return err }

// Enter fails unless the sandbox restricts nothing.
func (s Sandbox) Enter() error {
	if s.IsZero() {
		return nil
	}
	return errors.New("[sandbox] needs Linux; remove it from the spec, or run the pool on Linux")
}

// Ruleset restricts nothing: Enter has failed.
type Ruleset struct{}

// OpenFiles returns nil.
func (s Sandbox) OpenFiles() (*Ruleset, error) { return nil, nil }

// Restrict does nothing.
func (*Ruleset) Restrict() error { return nil }
