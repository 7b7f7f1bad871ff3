package cli

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tempool/tempool"
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

// The newest run of a worker may be within a task, and other builds may have begun runs with a state.
func TestWhatCannotBeReplayedLeavesWhatTheRunBeganWith(t *testing.T) {
	paths, err := filepath.Glob("../../../test/replay/testdata/v0.1/many-0.*.json.gz")
	require.NoError(t, err)
	require.Len(t, paths, 1)
	file, err := os.Open(paths[0])
	require.NoError(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	content, err := io.ReadAll(text)
	require.NoError(t, err)
	var run history.History
	require.NoError(t, protojson.Unmarshal(content, &run))
	replayed := func(events int) int {
		return len(replayRun(converter.GetDefaultDataConverter(), run.Events[:events]))
	}
	started := run.Events[0].GetWorkflowExecutionStartedEventAttributes()
	begun, err := tempool.CarriedRing(converter.GetDefaultDataConverter(), started)
	require.NoError(t, err)
	require.NotEmpty(t, begun)
	all, within := replayed(len(run.Events)), len(run.Events)
	begins := enums.EVENT_TYPE_WORKFLOW_TASK_STARTED // of the task that recorded the last transition
	for replayed(within) == all || run.Events[within-1].EventType != begins {
		within--
	}
	require.Greater(t, replayed(within), len(begun))
	require.Len(t, begun, replayed(1))
	started.WorkflowType.Name = "OfAnotherBuild"
	require.Equal(t, begun, replayRun(converter.GetDefaultDataConverter(), run.Events))
}
