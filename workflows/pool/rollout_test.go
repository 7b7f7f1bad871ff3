package pool

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// A worker that restarts, perhaps in vain, gets at once what the next rollout brings, and restarts once for it. It
// remains disrupted meanwhile, so that no other worker begins.
func TestANewRolloutReachesAWorkerThatRestarts(t *testing.T) {
	const begun = 5*time.Second + 2*stepDuration + 20*time.Millisecond // worker 1 restarts, worker 0 has
	apply := func(p *fakePool) { p.Update(api.UpdateApply, api.ApplyRequest{Spec: specOf(3, "mended")}) }
	restart := func(p *fakePool) { p.Update(api.UpdateRestart, api.RestartRequest{}) }
	crashLoop := func(a *fakeWorker) { // its pool does not know of its newer incarnations
		a.generation++
		a.entry.Incarnation += 7
		a.then(stepDuration/10, func() { a.rest(lifecycle.Failed, "the model file is missing") })
	}
	late := func(a *fakeWorker) {
		a.fakePool.slowSignals = stepDuration
		crashLoop(a)
	}
	for name, c := range map[string]struct {
		after  time.Duration
		during func(*fakeWorker)
		next   func(*fakePool)
	}{
		"an apply while it drains":                 {stepDuration / 2, nil, apply},
		"an apply while it starts":                 {stepDuration * 3 / 2, nil, apply},
		"an apply while it starts repeatedly":      {stepDuration * 3 / 2, crashLoop, apply},
		"an apply that it gets after it gives up":  {stepDuration * 3 / 2, late, apply},
		"a restart that it gets after it gives up": {stepDuration * 3 / 2, late, restart},
		"an apply that it gets after its next process could not be started": {stepDuration / 2, func(a *fakeWorker) {
			a.generation++
			a.report(lifecycle.Ready)
			a.fakePool.In(20*time.Millisecond+signalLatency/2, func() {
				a.fakePool.env.SignalWorkflow(api.SignalRotationDone, api.RotationDone{Slot: 1, Incarnation: a.entry.Incarnation,
					Failed: true, Reason: "the model file is missing", Restart: a.run.LastRestart})
			})
		}, apply},
		"an apply while it backs off": {stepDuration * 3 / 2, func(a *fakeWorker) {
			a.generation++
			a.report(lifecycle.Pending)
		}, apply},
		"an apply after its rollout was halted": {stepDuration * 3 / 2, func(a *fakeWorker) {
			a.fakePool.Update(api.UpdateHaltRollout, api.Control{})
		}, apply},
		"a restart": {stepDuration * 3 / 2, nil, restart},
		"changed files": {stepDuration * 3 / 2, nil, func(p *fakePool) {
			p.env.SignalWorkflow(api.SignalFilesChanged, api.FilesChanged{Pool: "t", Files: []string{"main.py"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakePool(t)
			p.UpdateAt(5*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, "next")})
			p.At(begun+c.after-20*time.Millisecond, func() {
				if c.during != nil {
					c.during(p.workers[1])
				}
			})
			p.At(begun+c.after, func() { c.next(p) })
			p.At(time.Minute, func() {
				status := p.status()
				require.Nil(t, status.Rollout)
				require.Equal(t, 3, status.Ready)
				for _, w := range status.Workers {
					require.Equal(t, status.SpecVersion, w.SpecVersion)
					require.Len(t, p.workers[w.Slot].timesOf(api.SignalRestart), []int{2, 2, 1}[w.Slot])
				}
				again := p.workers[1].timesOf(api.SignalRestart)[1]
				require.LessOrEqual(t, again, begun+c.after+p.slowSignals+2*signalLatency)
				require.Equal(t, 1, p.peak)
			})
			p.runUntil(2*time.Minute, poolOf(3))
		})
	}
}

// The server takes 4 MiB of commands for a workflow task, also of the one in which a rollout replaces another one.
func TestARolloutThatReplacesAnotherOneSendsNoMoreThanATaskHasRoomFor(t *testing.T) {
	const bytes, size = 100 << 10, 60
	p := newFakePool(t)
	run := poolOf(size)
	run.Spec.Pool.Env = map[string]string{"CONFIG": strings.Repeat("x", bytes)}
	run.Spec.Rotation.MaxUnavailable = size
	for _, when := range []time.Duration{2 * time.Minute, 2*time.Minute + stepDuration/2} {
		p.UpdateAt(when, api.UpdateRestart, api.RestartRequest{})
	}
	p.At(4*time.Minute, func() {
		require.Nil(t, p.status().Rollout)
		var again []time.Duration
		for _, w := range p.workers {
			require.Len(t, w.timesOf(api.SignalRestart), 2)
			again = append(again, w.timesOf(api.SignalRestart)[1])
		}
		first, sent := slices.Min(again), 0 // of its workflow tasks; the next one follows when a worker has its restart
		for _, when := range again {
			if when == first {
				sent += bytes
			}
		}
		require.LessOrEqual(t, sent, maxTaskBytes)
	})
	p.runUntil(5*time.Minute, run)
}
