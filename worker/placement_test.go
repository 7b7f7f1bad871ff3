package worker

import (
	"testing"

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

func TestOneFreeSlotIsPromisedToOneWorker(t *testing.T) {
	slots := newPlacementSlots(2)
	// ask runs an activity AwaitCapacity for a worker.
	ask := func(name string) bool {
		permit := slots.TryReserveSlot(nil)
		require.NotNil(t, permit, "the agent polls: the promised slot is for a start, which has to be polled, too")
		slots.MarkSlotUsed(markedSlot{permit: permit})
		defer slots.ReleaseSlot(usedSlot{permit: permit})
		return slots.promise(name)
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
