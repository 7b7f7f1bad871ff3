package worker

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// after returns an afterEnd function that calls its argument when done is closed.
func after(done <-chan struct{}) func(func()) {
	return func(f func()) {
		go func() {
			<-done
			f()
		}()
	}
}

func TestAPoolsQueueIsPolledFromItsFirstProcessToItsLast(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var attempts, serving atomic.Int64
	s := newPoolQueues(slog.New(slog.DiscardHandler), func(string) (func(), error) {
		attempts.Add(1)
		serving.Add(1)
		return func() { serving.Add(-1) }, nil
	})
	s.linger = time.Millisecond
	first, second := make(chan struct{}), make(chan struct{})
	s.add("p", after(first))
	s.add("p", after(second))
	require.Eventually(t, func() bool { return serving.Load() == 1 }, waitTimeout, time.Millisecond)
	close(first)
	close(second)
	require.Eventually(t, func() bool { return serving.Load() == 0 }, waitTimeout, time.Millisecond)
	require.EqualValues(t, 1, attempts.Load(), "two processes share the pool's queue")
	require.Empty(t, s.queues)

	third := make(chan struct{})
	s.add("p", after(third))
	require.Eventually(t, func() bool { return serving.Load() == 1 }, waitTimeout, time.Millisecond)
	s.close()
	s.add("p", after(make(chan struct{}))) // added after close, so not waited for
	close(third)
	s.waitClosed()
	require.Zero(t, serving.Load())
}

func TestACrashDoesNotInterruptThePolling(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var attempts atomic.Int64
	s := newPoolQueues(slog.New(slog.DiscardHandler), func(string) (func(), error) {
		attempts.Add(1)
		return func() {}, nil
	})
	s.linger = waitTimeout
	for range 20 {
		done := make(chan struct{})
		s.add("p", after(done))
		close(done)
	}
	s.close()
	s.waitClosed()
	require.EqualValues(t, 1, attempts.Load())
}

func TestAFailedStartOfAQueueIsRetriedWhileThePoolHasAProcess(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	tried := make(chan struct{})
	var once sync.Once
	s := newPoolQueues(slog.New(slog.DiscardHandler), func(string) (func(), error) {
		once.Do(func() { close(tried) })
		return nil, errors.New("Temporal is unavailable")
	})
	done := make(chan struct{})
	s.add("p", after(done))
	<-tried
	close(done)
	s.close()
	s.waitClosed()
}
