package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/lifecycle"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// in is a machine of incarnation 3 that has been in s since the epoch.
func in(s lifecycle.State) lifecycle.Machine {
	return lifecycle.Machine{
		State: s, Since: epoch, StartedAt: epoch, UpdatedAt: epoch, Health: lifecycle.Healthy, Incarnation: 3,
	}
}

func event(k lifecycle.EventKind) lifecycle.Event {
	e := lifecycle.Event{Kind: k, Reason: "because", Metadata: map[string]string{"key": "value"}}
	if k == lifecycle.Exited {
		e.Exit = &lifecycle.Exit{Code: 1}
	}
	return e
}

// page is the contract, written down a second time so that a slip in the table is seen.
var page = map[lifecycle.State]map[lifecycle.EventKind]lifecycle.State{
	"created":  {"start": "starting", "hold": "pending", "stop": "stopped"},
	"pending":  {"release": "starting", "stop": "stopped"},
	"starting": {"started": "ready", "start_failed": "failed", "stop": "stopping", "exited": "failed"},
	"ready": {"checkout": "busy", "probe_failed": "degraded", "suspend": "suspended", "drain": "draining",
		"stop": "stopping", "exited": "failed"},
	"busy": {"checkin": "ready", "checkin_error": "degraded", "checkin_close": "stopping",
		"lease_expired": "stopping", "unhealthy": "stopping", "drain": "draining", "stop": "stopping", "exited": "failed"},
	"degraded": {"probe_passed": "ready", "unhealthy": "stopping", "suspend": "suspended", "drain": "draining",
		"stop": "stopping", "exited": "failed"},
	"suspended": {"resume": "ready", "drain": "draining", "stop": "stopping", "exited": "failed"},
	"draining":  {"drained": "stopping", "drain_timeout": "stopping", "stop": "stopping", "exited": "failed"},
	"stopping":  {"exited": "failed"},
	"stopped":   {"hold": "pending", "start": "starting"},
	"finished":  {"hold": "pending", "start": "starting"},
	"failed":    {"hold": "pending", "start": "starting"},
	"killed":    {"hold": "pending", "start": "starting"},
}

// eventKinds lists every event in the order of a worker's life.
func eventKinds() []lifecycle.EventKind {
	return []lifecycle.EventKind{
		lifecycle.Start, lifecycle.Hold, lifecycle.Release, lifecycle.Stop, lifecycle.StartSucceeded, lifecycle.StartFailed,
		lifecycle.Exited,
		lifecycle.Checkout, lifecycle.Checkin, lifecycle.CheckinError, lifecycle.CheckinClose, lifecycle.LeaseExpired,
		lifecycle.ProbeFailed,
		lifecycle.ProbePassed, lifecycle.Unhealthy, lifecycle.Suspend, lifecycle.Resume, lifecycle.Drain, lifecycle.Drained,
		lifecycle.DrainTimeout,
	}
}

func TestEveryPairOfStateAndEventDoesWhatThePageSays(t *testing.T) {
	require.Len(t, lifecycle.States(), len(page))
	require.Len(t, eventKinds(), 20)
	legal := 0
	for _, s := range lifecycle.States() {
		for _, k := range append(eventKinds(), "no_such_event") {
			t.Run(fmt.Sprintf("%s/%s", s, k), func(t *testing.T) {
				before, want := in(s), page[s][k]
				copied := in(s)
				after, err := lifecycle.Next(before, event(k), epoch.Add(time.Second))
				to, ok := lifecycle.Allowed(s, k)
				require.Equal(t, copied, before)
				require.Equal(t, want != "", ok)
				if want == "" {
					require.EqualError(t, err,
						fmt.Sprintf("illegal transition: a worker in state %q does not accept event %q", s, k))
					require.Equal(t, before, after)
					return
				}
				legal++
				require.NoError(t, err)
				require.Equal(t, want, after.State)
				if k == lifecycle.Exited {
					require.Empty(t, to)
				} else {
					require.Equal(t, want, to)
				}
				require.Equal(t, epoch.Add(time.Second), after.Since)
				require.Equal(t, epoch.Add(time.Second), after.UpdatedAt)
				require.Equal(t, []lifecycle.Transition{{
					From: s, To: want, Event: k, Reason: "because", DurationMS: 1000, Timestamp: epoch.Add(time.Second),
					Incarnation: after.Incarnation, Metadata: map[string]string{"key": "value"},
				}}, after.Ring)
			})
		}
	}
	require.Equal(t, 46, legal)
}

func TestAnExitNeedsItsFacts(t *testing.T) {
	before := in(lifecycle.Ready)
	after, err := lifecycle.Next(before, lifecycle.Event{Kind: lifecycle.Exited}, epoch)
	require.ErrorIs(t, err, lifecycle.ErrExitMissing)
	require.Equal(t, before, after)

	_, err = lifecycle.Next(in(lifecycle.Created), lifecycle.Event{Kind: lifecycle.Exited}, epoch)
	require.ErrorContains(t, err, "illegal transition")
}

func TestIntentDecidesTheOutcome(t *testing.T) {
	for _, c := range []struct {
		name string
		exit lifecycle.Exit
		stop bool
		want lifecycle.State
	}{
		{"killed by us comes before everything",
			lifecycle.Exit{Killed: true, Interrupted: true, Code: -1, Signal: "SIGKILL", Error: "x"}, true, lifecycle.Killed},
		{"killed by us without a stop request", lifecycle.Exit{Killed: true}, false, lifecycle.Killed},
		{"killed by its agent for the host's sake", lifecycle.Exit{Killed: true, ByAgent: true, Signal: "SIGKILL"}, false,
			lifecycle.Failed},
		{"killed by its agent during a stop", lifecycle.Exit{Killed: true, ByAgent: true, Signal: "SIGKILL"}, true,
			lifecycle.Killed},
		{"an interruption comes before its own error",
			lifecycle.Exit{Interrupted: true, Code: -1, Signal: "SIGTERM", Error: "x"}, false, lifecycle.Stopped},
		{"a code is an error", lifecycle.Exit{Code: 3}, false, lifecycle.Failed},
		{"a code is an error although a stop was requested", lifecycle.Exit{Code: 3}, true, lifecycle.Failed},
		{"a foreign signal is an error", lifecycle.Exit{Signal: "SIGSEGV"}, true, lifecycle.Failed},
		{"a sentence is an error", lifecycle.Exit{Error: "host lost"}, true, lifecycle.Failed},
		{"clean, as requested", lifecycle.Exit{}, true, lifecycle.Stopped},
		{"clean, not requested", lifecycle.Exit{}, false, lifecycle.Finished},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, lifecycle.Outcome(c.exit, c.stop))
			m := in(lifecycle.Ready)
			if c.stop {
				m = in(lifecycle.Stopping)
			}
			after, err := lifecycle.Next(m, lifecycle.Event{Kind: lifecycle.Exited, Exit: &c.exit}, epoch)
			require.NoError(t, err)
			require.Equal(t, c.want, after.State)
			require.Equal(t, c.exit.String(), after.Ring[0].Reason)
			require.NotEmpty(t, after.Ring[0].Reason)
		})
	}
}

func TestTheFactsOfAnExitAreRecordedAsData(t *testing.T) {
	for want, exit := range map[string]lifecycle.Exit{
		`{"code":"0"}`: {},
		`{"code":"3"}`: {Code: 3},
		`{"code":"-1","signal":"SIGKILL","forced":"true"}`: {Code: -1, Signal: "SIGKILL", Killed: true},
		`{"code":"0","error":"host lost"}`:                 {Error: "host lost"},
	} {
		after, err := lifecycle.Next(in(lifecycle.Ready), lifecycle.Event{Kind: lifecycle.Exited, Exit: &exit}, epoch)
		require.NoError(t, err)
		text, err := json.Marshal(after.Ring[0].Metadata)
		require.NoError(t, err)
		require.JSONEq(t, want, string(text))
	}
}

func TestACleanExitAfterAnyRequestToEndIsStopped(t *testing.T) {
	clean := lifecycle.Event{Kind: lifecycle.Exited, Exit: &lifecycle.Exit{}}
	for from, kinds := range page {
		for k, to := range kinds {
			if to != lifecycle.Draining && to != lifecycle.Stopping {
				continue
			}
			require.Equal(t, lifecycle.Stopped, walk(t, in(from), event(k), clean).State, "%s in %s", k, from)
		}
	}
	require.Equal(t, lifecycle.Finished, walk(t, in(lifecycle.Ready), clean).State)
}

func walk(t *testing.T, m lifecycle.Machine, events ...lifecycle.Event) lifecycle.Machine {
	t.Helper()
	for _, e := range events {
		after, err := lifecycle.Next(m, e, m.Since.Add(time.Second))
		require.NoError(t, err)
		m = after
	}
	return m
}

func TestStartAndHoldBeginTheNextIncarnationAndReleaseDoesNot(t *testing.T) {
	for _, s := range []lifecycle.State{lifecycle.Created, lifecycle.Stopped, lifecycle.Finished, lifecycle.Failed,
		lifecycle.Killed} {
		for _, k := range []lifecycle.EventKind{lifecycle.Start, lifecycle.Hold} {
			m := in(s)
			after := walk(t, m, event(k))
			require.EqualValues(t, 4, after.Incarnation)
			require.Equal(t, lifecycle.Unknown, after.Health)
			require.True(t, after.StartedAt.IsZero())
			require.EqualValues(t, 4, after.Ring[0].Incarnation)
		}
	}
	held := walk(t, lifecycle.New(epoch), event(lifecycle.Hold), event(lifecycle.Release), event(lifecycle.StartSucceeded))
	require.EqualValues(t, 1, held.Incarnation)
	require.Equal(t, lifecycle.Ready, held.State)
}

func TestANewMachineIsCreatedBeforeItsFirstIncarnation(t *testing.T) {
	m := lifecycle.New(epoch)
	require.Equal(t, lifecycle.Machine{State: lifecycle.Created, Since: epoch, UpdatedAt: epoch,
		Health: lifecycle.Unknown}, m)
}

func TestHealthFollowsTheEvents(t *testing.T) {
	m := walk(t, lifecycle.New(epoch), event(lifecycle.Start))
	require.Equal(t, lifecycle.Unknown, m.Health)
	m = walk(t, m, event(lifecycle.StartSucceeded))
	require.Equal(t, lifecycle.Healthy, m.Health)
	require.Equal(t, epoch.Add(2*time.Second), m.StartedAt)
	m = walk(t, m, event(lifecycle.ProbeFailed))
	require.EqualValues(t, lifecycle.Unhealthy, m.Health)
	require.Equal(t, lifecycle.Healthy, walk(t, m, event(lifecycle.ProbePassed)).Health)
	m = walk(t, m, event(lifecycle.Unhealthy))
	require.EqualValues(t, lifecycle.Unhealthy, m.Health)
	m = walk(t, m, event(lifecycle.Exited))
	require.Equal(t, lifecycle.Unknown, m.Health)
	require.Equal(t, epoch.Add(2*time.Second), m.StartedAt, "the ended incarnation still shows when it became ready")
}

func TestHealthChangesWithoutTheState(t *testing.T) {
	m := in(lifecycle.Busy)
	same := lifecycle.WithHealth(m, lifecycle.Healthy, epoch.Add(time.Minute))
	require.Equal(t, m, same)
	ill := lifecycle.WithHealth(m, lifecycle.Unhealthy, epoch.Add(time.Minute))
	require.Equal(t, lifecycle.Busy, ill.State)
	require.EqualValues(t, lifecycle.Unhealthy, ill.Health)
	require.Equal(t, epoch.Add(time.Minute), ill.UpdatedAt)
	require.Equal(t, epoch, ill.Since)
	require.Equal(t, lifecycle.Healthy, m.Health)
}

func TestTheRingKeepsTheNewestHundredInOrder(t *testing.T) {
	m := walk(t, lifecycle.New(epoch), event(lifecycle.Start), event(lifecycle.StartSucceeded))
	for i := range 300 {
		k := []lifecycle.EventKind{lifecycle.Checkout, lifecycle.Checkin}[i%2]
		after, err := lifecycle.Next(m, lifecycle.Event{Kind: k, Reason: fmt.Sprint(i)},
			m.Since.Add(time.Duration(i)*time.Millisecond))
		require.NoError(t, err)
		m = after
		require.LessOrEqual(t, len(m.Ring), lifecycle.RingSize)
	}
	require.Len(t, m.Ring, lifecycle.RingSize)
	for i, tr := range m.Ring {
		require.Equal(t, fmt.Sprint(200+i), tr.Reason)
		require.EqualValues(t, 200+i, tr.DurationMS)
		if i > 0 {
			require.Equal(t, m.Ring[i-1].To, tr.From)
			require.False(t, tr.Timestamp.Before(m.Ring[i-1].Timestamp))
		}
	}
}

func TestNextSharesNothingWithItsArguments(t *testing.T) {
	for _, capacity := range []int{0, 500} {
		m := walk(t, lifecycle.New(epoch), event(lifecycle.Start), event(lifecycle.StartSucceeded))
		ring := append(make([]lifecycle.Transition, 0, len(m.Ring)+capacity), m.Ring...)
		m.Ring = ring
		e := event(lifecycle.Checkout)

		one, err := lifecycle.Next(m, e, epoch.Add(time.Hour))
		require.NoError(t, err)
		two, err := lifecycle.Next(m, event(lifecycle.Suspend), epoch.Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, lifecycle.Busy, one.Ring[2].To)
		require.Equal(t, lifecycle.Suspended, two.Ring[2].To)

		e.Metadata["key"] = "changed"
		require.Equal(t, "value", one.Ring[2].Metadata["key"])
		one.Ring[0].Reason = "changed"
		require.Equal(t, "because", m.Ring[0].Reason)
	}
}

func TestAClockThatWentBackGivesNoNegativeDuration(t *testing.T) {
	after, err := lifecycle.Next(in(lifecycle.Ready), event(lifecycle.Checkout), epoch.Add(-time.Hour))
	require.NoError(t, err)
	require.Zero(t, after.Ring[0].DurationMS)
}

func TestAMachineSurvivesJSON(t *testing.T) {
	paris := time.FixedZone("CET", 3600)
	for _, now := range []time.Time{time.Now(), epoch.In(paris)} {
		m := walk(t, lifecycle.New(now), event(lifecycle.Start), event(lifecycle.StartSucceeded),
			lifecycle.Event{Kind: lifecycle.Checkout, Metadata: map[string]string{}})
		for _, m := range []lifecycle.Machine{lifecycle.New(now), m, walk(t, m, event(lifecycle.Exited))} {
			text, err := json.Marshal(m)
			require.NoError(t, err)
			var back lifecycle.Machine
			require.NoError(t, json.Unmarshal(text, &back))
			require.Equal(t, m, back)
		}
	}
}

func TestTheWireFormatOfATransition(t *testing.T) {
	m := walk(t, in(lifecycle.Ready), event(lifecycle.Checkout))
	text, err := json.Marshal(m.Ring[0])
	require.NoError(t, err)
	require.JSONEq(t, `{"from":"ready","to":"busy","event":"checkout","reason":"because","duration_ms":1000,
		"timestamp":"2026-03-01T12:00:01Z","incarnation":3,"metadata":{"key":"value"}}`, string(text))
}

func TestOnlyStartingToStoppingIsLive(t *testing.T) {
	var live, outcomes []lifecycle.State
	for _, s := range lifecycle.States() {
		if s.Live() {
			live = append(live, s)
		}
		if s.Outcome() {
			outcomes = append(outcomes, s)
		}
	}
	require.Equal(t, []lifecycle.State{"starting", "ready", "busy", "degraded", "suspended", "draining", "stopping"}, live)
	require.Equal(t, []lifecycle.State{"stopped", "finished", "failed", "killed"}, outcomes)
}

func TestANoteIsOnRecordAndMovesNothing(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m, err := lifecycle.Next(lifecycle.New(began), lifecycle.Event{Kind: lifecycle.Start}, began)
	require.NoError(t, err)
	noted := lifecycle.Recorded(m, lifecycle.RotationFailed, "no model", began.Add(3*time.Second))
	require.Len(t, m.Ring, 1, "the machine it was given is as it was")
	require.Equal(t, lifecycle.Transition{
		From: lifecycle.Starting, To: lifecycle.Starting, Event: "rotation_failed", Reason: "no model", DurationMS: 3000,
		Timestamp: began.Add(3 * time.Second), Incarnation: 1,
	}, noted.Ring[1])
	require.True(t, noted.Ring[1].IsNote())
	require.False(t, noted.Ring[0].IsNote())
	noted.Ring = m.Ring
	require.Equal(t, m, noted)
	for range 2 * lifecycle.RingSize {
		noted = lifecycle.Recorded(noted, lifecycle.RotationObserved, "again", began)
	}
	require.Len(t, noted.Ring, lifecycle.RingSize)
}
