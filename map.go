package tempool

import (
	"context"
	"iter"
	"sync"
)

// Caller makes calls: a *Pool, a *PoolWorker or a *Lease.
type Caller interface {
	Call(ctx context.Context, method string, in, out any) error
}

// Call calls a method and returns its answer, decoded from JSON; see Pool.Call.
func Call[Out any](ctx context.Context, c Caller, method string, in any) (out Out, err error) {
	err = c.Call(ctx, method, in, &out)
	return out, err
}

// mapWindow is how many times the concurrency of a Map may have ended and wait for their turn.
const mapWindow = 4

// Map calls a method once for each item and yields the answer, or the error, of each in their order. At most
// concurrency calls run at a time; 1 for a concurrency below that. items runs on a goroutine of its own. Leaving the
// loop early cancels the calls in flight and waits for them. If ctx ends before all items were called, the loop ends
// with its error.
func Map[Out, In any](ctx context.Context, c Caller, method string, items iter.Seq[In],
	concurrency int) iter.Seq2[Out, error] {
	concurrency = max(concurrency, 1)
	return func(yield func(Out, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		type answer struct {
			out Out
			err error
		}
		slots := make(chan struct{}, concurrency)
		answers := make(chan chan answer, mapWindow*concurrency) // in the order of the items
		complete := false
		running.Go(func() {
			defer close(answers)
			for item := range items {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				one := make(chan answer, 1)
				running.Go(func() {
					defer func() { <-slots }()
					out, err := Call[Out](ctx, c, method, item)
					one <- answer{out, err}
				})
				select {
				case answers <- one:
				case <-ctx.Done():
					return
				}
			}
			complete = true
		})
		for one := range answers {
			if got := <-one; !yield(got.out, got.err) {
				return
			}
		}
		if !complete {
			var none Out
			yield(none, context.Cause(ctx))
		}
	}
}
