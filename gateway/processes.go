package gateway

import (
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Process is one incarnation on this host, as calls need it.
type Process interface {
	Worker() string
	Incarnation() int64
	// Spec is what the incarnation was started with.
	Spec() spec.Spec
	// Conn is how it is spoken to; nil for protocol none, which listens on Address instead.
	Conn() wire.Conn
	// Address is host:port or the path of a Unix socket; empty for other protocols.
	Address() string
	// Done is closed when the process and its tree are gone.
	Done() <-chan struct{}
	// Reason says how the process ended; empty while it lives.
	Reason() string
}

// Processes are the incarnations of this host. Get may know ended ones, too; List tells those that live, starting ones included.
type Processes interface {
	Get(worker string, incarnation int64) (Process, bool)
	List() []Process
}

// Supervised adapts a Supervisor. specOf tells the spec that an incarnation was started with; false means that nobody can
// call it yet, because its start is not through.
func Supervised(s *process.Supervisor, specOf func(worker string, incarnation int64) (spec.Spec, bool)) Processes {
	return supervised{s, specOf}
}

type supervised struct {
	supervisor *process.Supervisor
	specOf     func(string, int64) (spec.Spec, bool)
}

func (s supervised) Get(worker string, incarnation int64) (Process, bool) {
	p, found := s.supervisor.Get(worker, incarnation)
	if !found {
		return nil, false
	}
	return s.adapt(p)
}

func (s supervised) List() []Process {
	var list []Process
	for _, p := range s.supervisor.List() {
		if adapted, callable := s.adapt(p); callable {
			list = append(list, adapted)
		}
	}
	return list
}

func (s supervised) adapt(p *process.Process) (Process, bool) {
	sp, callable := s.specOf(p.Worker(), p.Incarnation())
	return supervisedProcess{p, sp}, callable
}

type supervisedProcess struct {
	*process.Process
	spec spec.Spec
}

func (p supervisedProcess) Spec() spec.Spec { return p.spec }
func (p supervisedProcess) Address() string { return p.Info().Address }
func (p supervisedProcess) Reason() string  { return p.Exit().Reason }
