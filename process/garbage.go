package process

import (
	"context"
	"fmt"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// gcMethod is the notification that asks a worker to give memory back, see docs/protocol.md.
const gcMethod = "tempool.gc"

// CollectGarbage asks the worker to give back what memory it can, and waits until it has read that, which is after the call in flight
// if it serves one at a time. It fails with CodeInvalid for a worker of another protocol than frames, which has no way to be asked,
// and otherwise as a ping does.
func (p *Process) CollectGarbage(ctx context.Context) error {
	if p.spec.Pool.Protocol != spec.ProtocolFrames {
		return coded(CodeInvalid, nil, "a worker of protocol %q cannot be asked to collect garbage; only one of %q can",
			p.spec.Pool.Protocol, spec.ProtocolFrames)
	}
	err := p.conn.Notify(ctx, wire.Request{Method: gcMethod})
	if err == nil {
		err = p.conn.Ping(ctx)
	}
	if err != nil {
		return fmt.Errorf("have %s collect garbage: %w", p.key(), err)
	}
	return nil
}
