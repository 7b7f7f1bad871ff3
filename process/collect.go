package process

import (
	"context"
	"fmt"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// gcMethod is the notification that asks a worker to release memory, see docs/protocol.md.
const gcMethod = "tempool.gc"

// CollectGarbage asks the worker to release memory, and waits until the worker has read the request; a worker that
// serves one call at a time reads it after the call in flight. It fails with CodeInvalid unless the worker's protocol
// is frames, and otherwise as a ping does.
func (p *Process) CollectGarbage(ctx context.Context) error {
	if p.spec.Pool.Protocol != spec.ProtocolFrames {
		return coded(CodeInvalid, nil,
			"a worker of protocol %q cannot collect garbage on request; only a worker of protocol %q can",
			p.spec.Pool.Protocol, spec.ProtocolFrames)
	}
	if p.Frozen() {
		return coded(CodeUnavailable, nil, "%s cannot collect garbage: its process tree is frozen", p.key())
	}
	if p = p.now(); p.conn == nil {
		return coded(CodeUnavailable, nil, "%s has no process yet: its key must come first", p.key())
	}
	err := p.conn.Notify(ctx, wire.Request{Method: gcMethod})
	if err == nil {
		err = p.conn.Ping(ctx)
	}
	if err != nil {
		return fmt.Errorf("collect garbage in %s: %w", p.key(), err)
	}
	return nil
}
