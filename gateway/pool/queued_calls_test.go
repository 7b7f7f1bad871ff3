package pool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// endedContext is a context that has ended, and calls ended when it is asked why.
type endedContext struct {
	context.Context
	ended func()
}

func (endedContext) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
func (c endedContext) Err() error  { c.ended(); return context.Canceled }
func (endedContext) Value(any) any { return nil }

func TestACallThatIsHeldAsItGivesUpIsNotTriedAgain(t *testing.T) {
	p := newPoolState(&Dispatcher{}, "p")
	c := &Call{session: "s"}
	w := newWaiter(p, c, &Target{})
	w.queuedAt, w.timeout = time.Now(), timeout
	c.ctx = endedContext{t.Context(), func() {
		p.heldCalls++
		w.started <- &heldError{make(chan struct{})}
	}}
	err := w.wait()
	require.Nil(t, heldBy(err), "its exchange is withdrawn")
	require.True(t, errors.Is(err, context.Canceled))
	require.Zero(t, p.heldCalls)
}
