package worker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
)

// usedSlot is the SDK's report about a slot.
type usedSlot struct {
	worker.SlotReleaseInfo
	permit *worker.SlotPermit
}

func (u usedSlot) Permit() *worker.SlotPermit { return u.permit }

type markedSlot struct {
	worker.SlotMarkUsedInfo
	permit *worker.SlotPermit
}

func (m markedSlot) Permit() *worker.SlotPermit { return m.permit }

// awaitCapacity runs an activity AwaitCapacity for a worker, and reports whether it is promised a slot.
func awaitCapacity(t *testing.T, slots *placementSlots, name string) bool {
	t.Helper()
	permit := slots.TryReserveSlot(nil)
	require.NotNil(t, permit, "the agent polls: the promised slot is for a start, which has to be polled, too")
	slots.MarkSlotUsed(markedSlot{permit: permit})
	defer slots.ReleaseSlot(usedSlot{permit: permit})
	return slots.promise(name)
}

func TestOneFreeSlotIsPromisedToOneWorker(t *testing.T) {
	slots := newPlacementSlots(2)
	ask := func(name string) bool {
		t.Helper()
		return awaitCapacity(t, slots, name)
	}
	starting := slots.TryReserveSlot(nil)
	slots.MarkSlotUsed(markedSlot{permit: starting})
	require.True(t, ask("t/1"))
	require.False(t, ask("t/2"), "the one free slot is kept for t/1")
	require.True(t, ask("t/1"), "who has a promise keeps it")
	slots.ReleaseSlot(usedSlot{permit: starting})
	require.True(t, ask("t/2"))
	require.False(t, ask("t/3"))
}

func TestFreedCapacityIsPromisedToAsManyWorkersAsFit(t *testing.T) {
	const capacity, freed, waiting = 5, 3, 20
	slots := newPlacementSlots(capacity)
	for range capacity - freed {
		slots.MarkSlotUsed(markedSlot{permit: slots.TryReserveSlot(nil)}) // of a start
	}
	promised := 0
	for i := range waiting {
		if awaitCapacity(t, slots, fmt.Sprint("t/", i)) {
			promised++
		}
	}
	require.Equal(t, freed, promised, "no herd")
}

// The pause ends on its own: the host may have resources again although none of its processes has ended.
func TestAHostWithoutResourcesTakesNoStartForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := newPlacementSlots(5)
		reserved := func() time.Duration {
			began := time.Now()
			permit, err := slots.ReserveSlot(t.Context(), nil)
			require.NoError(t, err)
			slots.ReleaseSlot(usedSlot{permit: permit})
			return time.Since(began)
		}
		require.Zero(t, reserved())
		for _, pause := range []time.Duration{minPause, 2 * minPause, 4 * minPause, 8 * minPause, maxPause, maxPause} {
			slots.pause()
			slots.pause() // starts that it had polled before
			require.Nil(t, slots.TryReserveSlot(nil))
			require.Equal(t, pause, reserved())
			require.NotNil(t, slots.TryReserveSlot(nil))
			slots.ReleaseSlot(usedSlot{})
		}
		slots.pause()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := slots.ReserveSlot(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestADrainingHostTakesNoStart(t *testing.T) {
	slots := newPlacementSlots(2)
	polled := slots.TryReserveSlot(nil)
	slots.MarkSlotUsed(markedSlot{permit: polled})
	slots.drain(true)
	require.Nil(t, slots.TryReserveSlot(nil))
	require.False(t, slots.promise("t/1"), "it was polled before")
	slots.drain(false)
	require.True(t, slots.promise("t/1"))
	require.NotNil(t, slots.TryReserveSlot(nil))
}
