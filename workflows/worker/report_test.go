package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func TestAWorkerWhoseStartsFailIsQuietButNeverAboutTheEndOfOneThatServed(t *testing.T) {
	s := newWorkerEnv(t)
	s.watchScript[1] = crash(time.Minute)
	announced := map[int64]string{}
	s.failStarts(func(r api.StartRequest) bool {
		if r.Announce != nil {
			announced[r.Incarnation] = r.Announce.Reason
		}
		return r.Incarnation > 1
	})
	s.At(time.Hour, s.signal(api.SignalEnd, api.Control{}))
	s.run(inPool(func(*spec.Spec) {}))
	var story []string
	for _, m := range s.signalsOf(api.SignalWorkerChanged) {
		c := m.(api.RosterEntry)
		story = append(story, fmt.Sprintf("%s #%d", c.State, c.Incarnation))
	}
	t.Log(story)
	require.Equal(t, map[int64]string{1: "first start of this worker"}, announced,
		"the host reports a start that follows no failure")
	require.Subset(t, story, []string{"starting #2", "pending #5"})
	require.Contains(t, story[:len(story)-1], "failed #10", "it gives up")
	require.LessOrEqual(t, len(story), 8)
}

// TestAWorkerThatStartsAgainNamesTheGatewayOfItsLastProcess: calls can wait there for the next one.
func TestAWorkerThatStartsAgainNamesTheGatewayOfItsLastProcess(t *testing.T) {
	for gateway, ended := range map[string]watchScript{
		"unix:/gateway": crash(time.Minute),
		"":              {after: time.Minute, result: api.WatchResult{Event: api.WatchUnknown, Reason: "the host is gone"}},
	} {
		t.Run(gateway, func(t *testing.T) {
			s := newWorkerEnv(t)
			s.watchScript[1] = ended
			s.slow = map[string]time.Duration{api.ActivityStart: 10 * time.Second}
			s.At(2*time.Minute, s.signal(api.SignalEnd, api.Control{}))
			s.run(inPool(func(*spec.Spec) {}))
			told := false
			for _, m := range s.signalsOf(api.SignalWorkerChanged) {
				if c := m.(api.RosterEntry); c.Incarnation == 2 && c.State == lifecycle.Starting {
					require.Equal(t, gateway, c.Endpoint)
					told = true
				}
			}
			require.True(t, told)
		})
	}
}

// Its pool judges a restart by what the worker reports of it, and not by what it reported before it got it.
func TestAWorkerSaysWhichRestartItHasBegun(t *testing.T) {
	s := newWorkerEnv(t)
	fails, announced := allStarts, ""
	s.failStarts(func(r api.StartRequest) bool {
		if r.Announce != nil {
			announced = r.Announce.Begun
		}
		return fails(r)
	})
	restart := func(id string) { s.env.SignalWorkflow(api.SignalOrder, api.Order{Kind: api.SignalRestart, ID: id}) }
	s.At(time.Hour, func() {
		require.Equal(t, api.ReasonGaveUp, s.newestReport().ReasonCode)
		require.Equal(t, "start", s.newestReport().Begun)
		require.Equal(t, "start", announced)
		restart("in vain")
	})
	s.At(2*time.Hour, func() {
		require.Equal(t, api.ReasonGaveUp, s.newestReport().ReasonCode)
		require.Equal(t, "in vain", s.newestReport().Begun)
		fails = ofSuccessors
		restart("mended")
	})
	s.At(3*time.Hour, func() {
		require.Equal(t, lifecycle.Ready, s.state().State)
		require.Equal(t, "mended", announced)
		restart("not begun")
	})
	s.At(4*time.Hour, func() {
		require.Equal(t, "mended", s.newestReport().Begun)
		done := s.signalsOf(api.SignalRotationDone)
		require.Len(t, done, 1)
		require.True(t, done[0].(api.RotationDone).Failed)
		require.Equal(t, "not begun", done[0].(api.RotationDone).Restart)
	})
	run := inPool(func(sp *spec.Spec) { sp.Recovery.MaxConsecutiveFailures = 2 })
	run.LastRestart, run.ContinueEvery = "start", 2
	s.runThrough(run)
}
