package process

import "github.com/tempool/tempool/spec"

// Spec is what the incarnation was started with.
func (p *Process) Spec() spec.Spec { return *p.spec }
