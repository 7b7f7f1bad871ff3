package tempool

import (
	"context"
	"iter"
	"strconv"

	"github.com/tempool/tempool/internal/transport"
)

// PoolWorker is one worker of a pool, for calls that must reach this one: to look into it, or to warm it up. Each call waits in the queue of its
// gateway until the worker is free; to keep the worker for several calls, take a lease.
type PoolWorker struct {
	pool *Pool
	slot int
}

// Worker returns the worker with this number, from 0, without checking that it exists. It makes its calls with the options of the pool.
func (p *Pool) Worker(slot int) *PoolWorker { return &PoolWorker{p, slot} }

// Call is Pool.Call on this worker. A worker that the pool does not have is worker_not_found, one that rests until an operator restarts it is failed,
// one that is suspended is suspended, at once.
func (w *PoolWorker) Call(ctx context.Context, method string, in, out any) error {
	return callJSON(ctx, w.send, method, in, out)
}

// CallRaw is Call with the body and the answer as bytes.
func (w *PoolWorker) CallRaw(ctx context.Context, method string, body []byte) ([]byte, error) {
	return callRaw(ctx, w.send, method, body)
}

// Stream is Pool.Stream on this worker.
func (w *PoolWorker) Stream(ctx context.Context, method string, in any) iter.Seq2[[]byte, error] {
	return stream(ctx, w.send, method, in)
}

func (w *PoolWorker) send(ctx context.Context, method string, body transport.Body) (*transport.Reply, error) {
	return w.pool.sendTo(ctx, "/workers/"+strconv.Itoa(w.slot)+"/call/", method, body)
}
