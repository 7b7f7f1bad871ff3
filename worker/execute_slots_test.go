package worker

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPermitsAreForFreeWorkers(t *testing.T) {
	var free atomic.Int64
	changed := make(chan struct{})
	s := newExecuteSlots("p", func(pool string) (int, <-chan struct{}) {
		require.Equal(t, "p", pool)
		return int(free.Load()), changed
	})
	require.Nil(t, s.TryReserveSlot(nil))
	free.Store(2)
	require.NotNil(t, s.TryReserveSlot(nil))
	require.NotNil(t, s.TryReserveSlot(nil))
	require.Nil(t, s.TryReserveSlot(nil), "two permits for two workers")

	// One poll returns a call, which occupies a worker: the other permit is for the other worker.
	ended := s.begin()
	free.Store(1)
	require.Nil(t, s.TryReserveSlot(nil))
	free.Store(2)
	ended()
	s.ReleaseSlot(nil)
	require.NotNil(t, s.TryReserveSlot(nil))
	require.Nil(t, s.TryReserveSlot(nil))

	t.Run("a free worker wakes a waiting reservation", func(t *testing.T) {
		got := make(chan error, 1)
		go func() {
			_, err := s.ReserveSlot(t.Context(), nil)
			got <- err
		}()
		free.Store(3)
		close(changed)
		require.NoError(t, <-got)
	})
	t.Run("a released permit wakes a waiting reservation", func(t *testing.T) {
		changed = make(chan struct{})
		got := make(chan error, 1)
		go func() {
			_, err := s.ReserveSlot(t.Context(), nil)
			got <- err
		}()
		s.ReleaseSlot(nil)
		require.NoError(t, <-got)
	})
	t.Run("the end of the context ends a waiting reservation", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.ReserveSlot(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
	})
}
