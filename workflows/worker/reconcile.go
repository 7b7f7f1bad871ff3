package worker

import (
	"github.com/tempool/tempool/lifecycle"
)

// The story of a worker, one chapter a state: place → start → serve → drain → stop → decide what next. Each chapter acts on
// the parked facts, sees to it that the work its state needs is under way, and reports whether anything changed; settle is
// called until nothing does.

func (w *worker) reconcile() bool {
	switch w.Machine.State {
	case lifecycle.Created:
		return w.startFirst()
	case lifecycle.Pending:
		return w.awaitStart()
	case lifecycle.Starting:
		return w.start()
	case lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded, lifecycle.Suspended:
		return w.serve()
	case lifecycle.Draining:
		return w.drain()
	case lifecycle.Stopping:
		return w.stop()
	}
	return w.decideNext()
}
