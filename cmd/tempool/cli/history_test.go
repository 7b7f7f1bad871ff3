package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/lifecycle"
)

func TestHistoryMarksGaps(t *testing.T) {
	step := func(from, to lifecycle.State, event lifecycle.EventKind, at, lasted time.Duration) lifecycle.Transition {
		return lifecycle.Transition{From: from, To: to, Event: event, Reason: "because\nof this", Timestamp: noon.Add(at),
			DurationMS: lasted.Milliseconds()}
	}
	transitions := []lifecycle.Transition{
		step(lifecycle.Starting, lifecycle.Ready, lifecycle.StartSucceeded, time.Second, time.Second),
		step(lifecycle.Ready, lifecycle.Busy, lifecycle.Checkout, 3*time.Second, 2*time.Second),
		step(lifecycle.Ready, lifecycle.Busy, lifecycle.Checkout, time.Hour, time.Minute),
	}
	f := newFakeControlPlane(&fakePool{name: "python", history: transitions})
	f.replayed = transitions
	all := succeed(t, f, "history", "python/0", "--all")
	require.Equal(t, lines(
		"WHEN                  FROM      EVENT     TO     AFTER  REASON",
		historyGapLine,
		"2026-03-04T12:00:01Z  starting  started   ready  1.0s   because of this",
		"2026-03-04T12:00:03Z  ready     checkout  busy   2.0s   because of this",
		historyGapLine,
		"2026-03-04T13:00:00Z  ready     checkout  busy   1m0s   because of this",
	), all.out)
	require.Contains(t, all.err, "replaying the runs of python/0")
	require.Contains(t, all.err, "some transitions of python/0 are no longer available")

	newest := ctl(t, f, "history", "python/0")
	require.NotContains(t, newest.out, historyGapLine, "the newest are no claim to be all")
	require.Empty(t, newest.err)

	asJSON := ctl(t, f, "history", "python/0", "--all", "-o", "json")
	require.Equal(t, transitions, decode[[]lifecycle.Transition](t, asJSON))

	f.replayed = []lifecycle.Transition{{From: lifecycle.Created, To: lifecycle.Starting, Event: lifecycle.Start,
		Timestamp: noon}, transitions[0]}
	whole := succeed(t, f, "history", "python/0", "--all", "-o", "json")
	require.NotContains(t, whole.err, "no longer available")
	require.Equal(t, f.replayed, decode[[]lifecycle.Transition](t, whole))
	f.pools["python"].history = nil
	require.Equal(t, "[]\n", ctl(t, f, "history", "python/0", "-o", "json").out)
}
