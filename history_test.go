package tempool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/lifecycle"
)

// life returns n transitions of a worker that starts and is then leased repeatedly, and the ring after each.
func life(t *testing.T, n int) (all []lifecycle.Transition, rings [][]lifecycle.Transition) {
	t.Helper()
	now := time.Date(2026, 3, 4, 12, 0, 0, 123_456_789, time.UTC)
	machine := lifecycle.New(now)
	for i := range n {
		kind := lifecycle.Checkout
		switch {
		case i == 0:
			kind = lifecycle.Start
		case i == 1:
			kind = lifecycle.StartSucceeded
		case i%2 == 1:
			kind = lifecycle.Checkin
		}
		// Every third step has the timestamp of the one before, as steps in one workflow task do.
		if i%3 > 0 {
			now = now.Add(1_700_001 * time.Nanosecond)
		}
		var err error
		machine, err = lifecycle.Next(machine, lifecycle.Event{Kind: kind, Reason: "step"}, now)
		require.NoError(t, err)
		all = append(all, machine.Ring[len(machine.Ring)-1])
		rings = append(rings, machine.Ring)
	}
	return all, rings
}

func TestRingsOfManyRunsAreMerged(t *testing.T) {
	all, rings := life(t, 450)
	for name, ends := range map[string][]int{
		"one run":                      {60},
		"runs that overlap":            {50, 99, 100, 101, 180, 279, 378, 449},
		"runs in which little happens": {0, 0, 1, 1, 2, 5, 5, 90, 150},
		"a run of exactly one ring":    {99, 199, 299},
	} {
		t.Run(name, func(t *testing.T) {
			windows := [][]lifecycle.Transition{nil}
			for _, end := range ends {
				windows = append(windows, rings[end])
			}
			merged := JoinHistory(windows)
			require.Equal(t, all[:ends[len(ends)-1]+1], merged)
			require.Empty(t, HistoryGaps(merged))
		})
	}
}

func TestARunWithMoreTransitionsThanItsRingLeavesAGap(t *testing.T) {
	all, rings := life(t, 450)
	merged := JoinHistory([][]lifecycle.Transition{nil, rings[49], rings[200], rings[249], rings[449]})
	require.Len(t, merged, 50+100+49+100)
	require.Equal(t, []int{50, 50 + 100 + 49}, HistoryGaps(merged))
	require.Equal(t, all[101], merged[50])

	require.Equal(t, []int{0}, HistoryGaps(rings[300]), "the beginning is missing")
	require.Empty(t, HistoryGaps(nil))
}

func TestAGapIsFoundEvenIfTheStatesMatch(t *testing.T) {
	all, _ := life(t, 20)
	pieces := append(append([]lifecycle.Transition{}, all[:6]...), all[10:]...)
	require.Equal(t, pieces[5].To, pieces[6].From)
	require.Equal(t, []int{6}, HistoryGaps(pieces))
}

func TestTheRingIsReadFromTheInputOfARun(t *testing.T) {
	all, _ := life(t, 5)
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(map[string]any{
		"pool": "python", "machine": lifecycle.Machine{State: lifecycle.Ready, Ring: all},
	})
	require.NoError(t, err)
	ring, err := CarriedRing(converter.GetDefaultDataConverter(),
		&history.WorkflowExecutionStartedEventAttributes{Input: payloads})
	require.NoError(t, err)
	require.Equal(t, all, ring)

	ring, err = CarriedRing(converter.GetDefaultDataConverter(), &history.WorkflowExecutionStartedEventAttributes{})
	require.NoError(t, err)
	require.Empty(t, ring)

	_, err = CarriedRing(converter.GetDefaultDataConverter(),
		&history.WorkflowExecutionStartedEventAttributes{
			Input: &common.Payloads{Payloads: []*common.Payload{{Data: []byte("{")}}},
		})
	require.Error(t, err)
}

func TestANoteIsNotAGap(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := lifecycle.New(at)
	step := func(kind lifecycle.EventKind) {
		at = at.Add(time.Second)
		var err error
		m, err = lifecycle.Next(m, lifecycle.Event{Kind: kind}, at)
		require.NoError(t, err)
	}
	note := func() {
		at = at.Add(time.Second)
		m = lifecycle.Recorded(m, lifecycle.RotationFailed, "no model", at)
	}
	step(lifecycle.Start)
	step(lifecycle.StartSucceeded)
	note()
	note()
	step(lifecycle.Drain)
	require.Empty(t, HistoryGaps(m.Ring))
	require.Equal(t, []int{0}, HistoryGaps(m.Ring[3:]), "only what was before the first is missing")
	require.Equal(t, []int{1}, HistoryGaps([]lifecycle.Transition{m.Ring[0], m.Ring[3], m.Ring[4]}),
		"a note does not bridge a step")
}
