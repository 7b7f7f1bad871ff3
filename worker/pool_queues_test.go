package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const patience = 10 * time.Second

// after calls what it is given when done is closed.
func after(done <-chan struct{}) func(func()) {
	return func(f func()) {
		go func() {
			<-done
			f()
		}()
	}
}

func TestAPoolIsServedFromItsFirstProcessToItsLast(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var attempts, serving atomic.Int64
	s := newPoolQueues(slog.New(slog.DiscardHandler), func(string) (func(), error) {
		attempts.Add(1)
		serving.Add(1)
		return func() { serving.Add(-1) }, nil
	})
	s.linger = time.Millisecond
	first, second := make(chan struct{}), make(chan struct{})
	s.addPool("p", after(first))
	s.addPool("p", after(second))
	require.Eventually(t, func() bool { return serving.Load() == 1 }, patience, time.Millisecond)
	close(first)
	close(second)
	require.Eventually(t, func() bool { return serving.Load() == 0 }, patience, time.Millisecond)
	require.EqualValues(t, 1, attempts.Load(), "two processes share the pool's service")
	require.Empty(t, s.queues)

	third := make(chan struct{})
	s.addPool("p", after(third))
	require.Eventually(t, func() bool { return serving.Load() == 1 }, patience, time.Millisecond)
	s.close()
	s.addPool("p", after(make(chan struct{}))) // one that never ends is not waited for: it came too late
	close(third)
	s.waitClosed()
	require.Zero(t, serving.Load())
}

func TestACrashDoesNotInterruptThePoolsService(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var attempts atomic.Int64
	s := newPoolQueues(slog.New(slog.DiscardHandler), func(string) (func(), error) {
		attempts.Add(1)
		return func() {}, nil
	})
	s.linger = patience
	for range 20 {
		done := make(chan struct{})
		s.addPool("p", after(done))
		close(done)
	}
	s.close()
	s.waitClosed()
	require.LessOrEqual(t, attempts.Load(), int64(1))
}

func TestAServiceThatCannotStartIsTriedAgainWhileThereIsAProcess(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	tried := make(chan struct{})
	var once sync.Once
	s := newPoolQueues(slog.New(slog.DiscardHandler), func(string) (func(), error) {
		once.Do(func() { close(tried) })
		return nil, errors.New("Temporal is away")
	})
	done := make(chan struct{})
	s.addPool("p", after(done))
	<-tried
	close(done)
	s.close()
	s.waitClosed()
}

func TestPermitsAreForWorkersToSpare(t *testing.T) {
	var spare atomic.Int64
	changed := make(chan struct{})
	s := newExecuteSlots("p", func(pool string) (int, <-chan struct{}) {
		require.Equal(t, "p", pool)
		return int(spare.Load()), changed
	})
	require.Nil(t, s.TryReserveSlot(nil))
	spare.Store(2)
	require.NotNil(t, s.TryReserveSlot(nil))
	require.NotNil(t, s.TryReserveSlot(nil))
	require.Nil(t, s.TryReserveSlot(nil), "two polls are out for two workers")

	// One poll brings a call, which takes its worker: the other permit stands for the worker that is left.
	ended := s.begin()
	spare.Store(1)
	require.Nil(t, s.TryReserveSlot(nil))
	spare.Store(2)
	ended()
	s.ReleaseSlot(nil)
	require.NotNil(t, s.TryReserveSlot(nil))
	require.Nil(t, s.TryReserveSlot(nil))

	t.Run("who waits is woken by a worker that comes free", func(t *testing.T) {
		got := make(chan error, 1)
		go func() {
			_, err := s.ReserveSlot(t.Context(), nil)
			got <- err
		}()
		spare.Store(3)
		close(changed)
		require.NoError(t, <-got)
	})
	t.Run("and by a permit that comes back", func(t *testing.T) {
		changed = make(chan struct{})
		got := make(chan error, 1)
		go func() {
			_, err := s.ReserveSlot(t.Context(), nil)
			got <- err
		}()
		s.ReleaseSlot(nil)
		require.NoError(t, <-got)
	})
	t.Run("and by the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.ReserveSlot(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
	})
}
