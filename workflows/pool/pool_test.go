package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// slotsOf is the roster in short.
func slotsOf(s api.PoolStatus) []string {
	var lines []string
	for _, w := range s.Workers {
		lines = append(lines, fmt.Sprintf("%d %s #%d v%d", w.Slot, w.State, w.Incarnation, w.SpecVersion))
	}
	return lines
}

// specOf is a spec for the fakePool's pool that differs from the first one by its command.
func specOf(size int, command string) spec.Spec {
	s := workflowtest.Spec()
	s.Pool.Size, s.Pool.Command = size, []string{command}
	return s
}

func number(n int) *int { return &n }

func TestAPoolStartsItsSizeAndStopsWhenAllHaveEnded(t *testing.T) {
	p := newFakePool(t)
	var before api.PoolStatus
	p.At(5*time.Second, func() { before = p.status() })
	stopped := p.UpdateAt(5*time.Second, api.UpdateStop, api.Control{Reason: "done"})
	p.At(5*time.Second+stepDuration/2, func() {
		require.Equal(t, 3, p.open(), "the pool waits for its workers to drain")
		require.True(t, p.status().Stopping)
	})
	late := p.UpdateAt(5*time.Second+stepDuration/2, api.UpdateScale, api.ScaleRequest{Size: 2})
	p.run(poolOf(3))
	require.Equal(t, 3, before.Ready)
	require.Equal(t, []string{"0 ready #1 v1", "1 ready #1 v1", "2 ready #1 v1"}, slotsOf(before))
	require.Equal(t, api.PoolStopResult{Stopping: 3}, stopped.Value)
	requireRefused(t, late, api.CodeDraining)
	require.Zero(t, p.open())
	require.Empty(t, p.status().Workers)
}

func TestScaleTouchesNoOtherWorker(t *testing.T) {
	p := newFakePool(t)
	up := p.UpdateAt(5*time.Second, api.UpdateScale, api.ScaleRequest{Size: 4})
	p.At(10*time.Second, func() { require.Equal(t, 4, p.status().Ready) })
	down := p.UpdateAt(10*time.Second, api.UpdateScale, api.ScaleRequest{Size: 1, By: "ann"})
	p.At(10*time.Second+stepDuration/2, func() {
		require.Len(t, p.status().Workers, 4, "those that go are listed until they have gone")
	})
	p.At(15*time.Second, func() {
		require.Equal(t, []string{"0 ready #1 v1"}, slotsOf(p.status()))
		require.Equal(t, 1, p.open())
	})
	p.runUntil(20*time.Second, poolOf(2))
	require.Equal(t, api.ScaleResult{From: 2, To: 4}, up.Value)
	require.Equal(t, api.ScaleResult{From: 4, To: 1}, down.Value)
	require.Len(t, p.started, 4)
	require.Equal(t, []string{`/pools/t pool.scaled {"from":2,"to":4}`,
		`/pools/t pool.scaled {"from":4,"to":1,"reason":"requested by ann"}`}, p.emitted)
}

func TestApplyRollsNoMoreThanTheBudgetAtATime(t *testing.T) {
	for _, budget := range []int{1, 2} {
		t.Run(fmt.Sprintf("max_unavailable %d", budget), func(t *testing.T) {
			p := newFakePool(t)
			next := specOf(5, "next")
			next.Rotation.MaxUnavailable = budget
			same := p.UpdateAt(5*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(5, "true")})
			applied := p.UpdateAt(5*time.Second, api.UpdateApply, api.ApplyRequest{Spec: next})
			p.At(5*time.Second+stepDuration, func() {
				r := p.status().Rollout
				require.Len(t, r.Current, budget)
				require.Len(t, r.Waiting, 5-budget)
			})
			p.At(60*time.Second, func() {
				st := p.status()
				require.Nil(t, st.Rollout)
				require.Equal(t, []string{"0 ready #2 v2", "1 ready #2 v2", "2 ready #2 v2", "3 ready #2 v2", "4 ready #2 v2"},
					slotsOf(st))
			})
			p.runUntil(61*time.Second, poolOf(5))
			require.Equal(t, api.ApplyResult{SpecVersion: 1}, same.Value)
			require.Equal(t, api.ApplyResult{SpecVersion: 2, Changed: true}, applied.Value)
			require.Equal(t, budget, p.peak)
			require.Equal(t, []string{`/pools/t pool.applied {"spec_version":2}`}, p.emitted)
		})
	}
}

func TestRestartOfOneOrOfAll(t *testing.T) {
	p := newFakePool(t)
	p.slowSignals = 2 * time.Second
	var all *workflowtest.UpdateResult
	one := p.UpdateAt(5*time.Second, api.UpdateRestart, api.RestartRequest{Worker: number(1), Reason: "odd", By: "me"})
	p.At(6*time.Second, func() { require.Nil(t, one.Value, "the worker does not have it yet") })
	p.At(10*time.Second, func() {
		require.Equal(t, api.RestartResult{Workers: []int{1}}, one.Value)
		require.Equal(t, []string{"0 ready #1 v1", "1 ready #2 v1", "2 ready #1 v1"}, slotsOf(p.status()))
		p.slowSignals = 0
		all = p.Update(api.UpdateRestart, api.RestartRequest{Reason: "new moon"})
	})
	p.At(30*time.Second, func() {
		require.Equal(t, []string{"0 ready #2 v1", "1 ready #3 v1", "2 ready #2 v1"}, slotsOf(p.status()))
		require.Nil(t, p.status().Rollout)
	})
	p.runUntil(31*time.Second, poolOf(3))
	require.Equal(t, api.RestartResult{Workers: []int{0, 1, 2}}, all.Value)
	require.Equal(t, 1, p.peak)
}

func TestARestartOrApplyInTheFirstMomentStartsNobodyTwice(t *testing.T) {
	p := newFakePool(t)
	var restarted *workflowtest.UpdateResult
	p.At(time.Millisecond, func() {
		restarted = p.Update(api.UpdateRestart, api.RestartRequest{Worker: number(0)})
		p.Update(api.UpdateApply, api.ApplyRequest{Spec: specOf(2, "next")})
	})
	p.At(30*time.Second, func() {
		st := p.status()
		require.Nil(t, st.Rollout)
		require.Equal(t, 2, st.Ready)
		for _, w := range st.Workers {
			require.EqualValues(t, 2, w.SpecVersion)
		}
	})
	p.runUntil(31*time.Second, poolOf(2))
	require.NoError(t, restarted.Err)
	require.Len(t, p.started, 2)
	require.Zero(t, p.refused)
}

func TestLateReportsOfAnEarlierWorkflowAreIgnored(t *testing.T) {
	p := newFakePool(t)
	var ghost api.RosterEntry
	p.At(5*time.Second, func() {
		ghost = p.workers[0].entry
		p.workers[0].exit("terminated")
	})
	p.At(10*time.Second, func() {
		say := func(e api.RosterEntry) { p.env.SignalWorkflow(api.SignalWorkerChanged, e) }
		ghost.State, ghost.Gone = lifecycle.Failed, true
		say(ghost)
		stranger := ghost
		stranger.Slot, stranger.RunID = 9, "x"
		say(stranger)
		older := p.workers[0].entry // its own, overtaken by a newer one
		older.Incarnation--
		older.State = lifecycle.Failed
		say(older)
	})
	p.At(11*time.Second, func() { require.Equal(t, []string{"0 ready #3 v1"}, slotsOf(p.status())) })
	p.runUntil(12*time.Second, poolOf(1))
	require.Len(t, p.started, 2)
}

func TestALateReportOfAnEarlierWorkflowSaysNothingOfTheOneThatStarts(t *testing.T) {
	for name, gone := range map[string]bool{"its last": true, "another": false} {
		t.Run(name, func(t *testing.T) {
			p := newFakePool(t)
			p.At(5*time.Second, func() {
				ghost := p.workers[0].entry
				ghost.State, ghost.Gone, ghost.Incarnation = lifecycle.Stopped, gone, ghost.Incarnation+50
				p.beforeStart = func() {
					p.env.SignalWorkflow(api.SignalWorkerChanged, ghost)
				}
				p.workers[0].exit("terminated")
			})
			p.At(10*time.Second, func() { require.Equal(t, []string{"0 ready #3 v1"}, slotsOf(p.status())) })
			p.runUntil(12*time.Second, poolOf(1))
			require.Len(t, p.started, 2)
		})
	}
}

func TestAPoolRefusesInvalidRequests(t *testing.T) {
	renamed := specOf(2, "true")
	renamed.Pool.Name = "other"
	broken := specOf(2, "true")
	broken.Pool.Command = nil
	cases := []struct {
		name    string
		update  string
		request any
		code    api.Code
		says    string
	}{
		{"a size below 1", api.UpdateScale, api.ScaleRequest{Size: 0}, api.CodeInvalid, "stop the pool"},
		{"a size beyond the limit", api.UpdateScale, api.ScaleRequest{Size: maxSize + 1}, api.CodeInvalid, "1000"},
		{"another pool's spec", api.UpdateApply, api.ApplyRequest{Spec: renamed}, api.CodeInvalid, "cannot be renamed"},
		{"an invalid spec", api.UpdateApply, api.ApplyRequest{Spec: broken}, api.CodeInvalid, "command"},
		{"a restart of no worker of its own", api.UpdateRestart, api.RestartRequest{Worker: number(2)},
			api.CodeWorkerNotFound, "tempool ps t"},
		{"a negative " +
			"worker", api.UpdateRestart, api.RestartRequest{Worker: number(-1)}, api.CodeWorkerNotFound, "tempool ps t"},
		{"a drain of no worker of its own", api.UpdateDrain, api.Control{Worker: number(7)}, api.CodeWorkerNotFound,
			"tempool ps t"},
		{"a drain of nobody", api.UpdateDrain, api.Control{}, api.CodeInvalid, "worker is required"},
	}
	p := newFakePool(t)
	answers := make([]*workflowtest.UpdateResult, len(cases))
	p.At(5*time.Second, func() {
		for i, c := range cases {
			answers[i] = p.Update(c.update, c.request)
		}
	})
	p.UpdateAt(6*time.Second, api.UpdateStop, api.Control{})
	whileStopping := map[string]any{
		api.UpdateScale: api.ScaleRequest{Size: 2}, api.UpdateApply: api.ApplyRequest{Spec: specOf(2, "x")},
		api.UpdateRestart: api.RestartRequest{}, api.UpdateDrain: api.Control{Worker: number(0)},
	}
	stopping := map[string]*workflowtest.UpdateResult{}
	p.At(6*time.Second+stepDuration/2, func() {
		for update, request := range whileStopping {
			stopping[update] = p.Update(update, request)
		}
	})
	p.run(poolOf(2))
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			require.Contains(t, requireRefused(t, answers[i], c.code).Message(), c.says)
		})
	}
	require.Len(t, stopping, len(whileStopping))
	for update, answer := range stopping {
		t.Run(update+" while it stops", func(t *testing.T) { requireRefused(t, answer, api.CodeDraining) })
	}
	require.Len(t, p.started, 2, "nothing has changed by any of it")
}

func requireRefused(t *testing.T, a *workflowtest.UpdateResult, code api.Code) *temporal.ApplicationError {
	t.Helper()
	require.NotNil(t, a)
	return workflowtest.RequireCode(t, a.Rejected, code)
}

// TestStoppedWhileItContinuesAsNew sends the stop at every moment around the change of runs: the cancellation that
// comes with the change must not be taken for the end, nor the end for that cancellation.
func TestStoppedWhileItContinuesAsNew(t *testing.T) {
	for offset := -5 * time.Millisecond; offset <= 80*time.Millisecond; offset += 5 * time.Millisecond {
		for what, end := range map[string]func(*fakePool){
			"stop":   func(p *fakePool) { p.Update(api.UpdateStop, api.Control{}) },
			"scale":  func(p *fakePool) { p.Update(api.UpdateScale, api.ScaleRequest{Size: 1}) },
			"cancel": func(p *fakePool) { p.env.CancelWorkflow() },
		} {
			t.Run(fmt.Sprintf("%s after %s", what, offset), func(t *testing.T) {
				p := newFakePool(t)
				p.At(5*time.Second, func() { p.env.SignalWorkflow(api.SignalForceContinue, api.Control{}) })
				p.At(5*time.Second+offset, func() { end(p) })
				if what == "scale" {
					p.At(20*time.Second, func() {
						require.Equal(t, 1, p.open())
						require.Len(t, p.status().Workers, 1)
						p.Update(api.UpdateStop, api.Control{})
					})
				}
				p.run(poolOf(2))
				require.Zero(t, p.open())
				require.Len(t, p.started, 2)
			})
		}
	}
}

// TestContinueAsNewChangesNothingForAPool plays one eventful life with a new run every n iterations, and expects the
// same life.
func TestContinueAsNewChangesNothingForAPool(t *testing.T) {
	life := func(t *testing.T, every int) (story []string, runs int) {
		p := newFakePool(t)
		note := func(when time.Duration) {
			p.At(when, func() {
				st := p.status()
				story = append(story, fmt.Sprintf("%s: size %d, %v, rollout %v", when, st.Size, slotsOf(st), st.Rollout))
			})
		}
		note(5 * time.Second)
		p.UpdateAt(6*time.Second, api.UpdateScale, api.ScaleRequest{Size: 4})
		note(12 * time.Second)
		next := specOf(4, "next")
		next.Rotation.MaxUnavailable = 2
		p.UpdateAt(13*time.Second, api.UpdateApply, api.ApplyRequest{Spec: next})
		note(15*time.Second + stepDuration/2)
		note(30 * time.Second)
		p.UpdateAt(31*time.Second, api.UpdateScale, api.ScaleRequest{Size: 2})
		note(31*time.Second + stepDuration/2)
		note(35 * time.Second)
		p.UpdateAt(36*time.Second, api.UpdateScale, api.ScaleRequest{Size: 3})
		note(40 * time.Second)
		p.UpdateAt(41*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, neverStarts)})
		note(55 * time.Second)
		p.UpdateAt(56*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, "mended")})
		note(75 * time.Second)
		p.UpdateAt(76*time.Second, api.UpdateDrain, api.Control{Worker: number(1), Reason: "new disk"})
		note(80 * time.Second)
		p.UpdateAt(81*time.Second, api.UpdateRestart, api.RestartRequest{Worker: number(1)})
		p.UpdateAt(85*time.Second, api.UpdateRestart, api.RestartRequest{Reason: "new moon"})
		note(100 * time.Second)
		// started in this run or the one before: gone in either case
		p.UpdateAt(101*time.Second, api.UpdateScale, api.ScaleRequest{Size: 4})
		p.At(110*time.Second, func() {
			p.workers[3].reportGone() // unasked: somebody has cancelled it by hand
		})
		note(120 * time.Second)
		p.At(121*time.Second, func() { p.env.SignalWorkflow(api.SignalForceContinue, api.Control{}) })
		note(130 * time.Second)
		p.stopAt(131 * time.Second)
		run := poolOf(2)
		run.ContinueEvery = every
		p.run(run)
		require.Zero(t, p.open())
		require.Zero(t, p.refused)
		for _, run := range p.started {
			story = append(story, fmt.Sprintf("started %d #%d lease %d v%d", run.Slot, run.Machine.Incarnation, run.LeaseSeq,
				run.SpecVersion))
		}
		return append(story, fmt.Sprintf("at most %d at a time", p.peak)), p.runs
	}
	expected, runs := life(t, 0)
	require.Equal(t, 2, runs, "one forced by signal")
	for _, every := range []int{1, 2, 3, 5, 7, 11, 1000} {
		t.Run(fmt.Sprintf("every %d iterations", every), func(t *testing.T) {
			story, runs := life(t, every)
			require.Equal(t, expected, story)
			if every < 10 {
				require.Greater(t, runs, 4)
			}
		})
	}
}

func TestAPoolRemembersTheFirstHostThatKeepsItsSessions(t *testing.T) {
	p := newFakePool(t)
	p.At(5*time.Second, func() {
		worker := p.status().Workers[0]
		worker.Host = "here"
		p.env.SignalWorkflow(api.SignalWorkerChanged, worker)
	})
	kept := map[string]string{}
	for i, from := range []string{"gone", "here", "late"} {
		p.signalAt(time.Duration(6+2*i)*time.Second, api.SignalSessionStoreClaimed, api.SessionStoreClaim{Host: from})
		p.At(time.Duration(7+2*i)*time.Second, func() { kept[from] = p.status().SessionsHost })
	}
	p.runUntil(15*time.Second, poolOf(2))
	require.Equal(t, map[string]string{"gone": "gone", "here": "here", "late": "here"}, kept,
		"a host without workers is followed by the next one")
}
