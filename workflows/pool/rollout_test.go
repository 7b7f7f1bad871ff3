package pool

import (
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
	apply := func(p *fakePool) { p.update(api.UpdateApply, api.ApplyRequest{Spec: specOf(3, "mended")}) }
	crashLoop := func(a *fakeWorker) { // its pool does not know of its newer incarnations
		a.generation++
		a.entry.Incarnation += 7
		a.then(stepDuration/10, func() { a.rest(lifecycle.Failed, "the model file is missing") })
	}
	for name, c := range map[string]struct {
		after  time.Duration
		during func(*fakeWorker)
		next   func(*fakePool)
	}{
		"an apply while it drains":            {stepDuration / 2, nil, apply},
		"an apply while it starts":            {stepDuration * 3 / 2, nil, apply},
		"an apply while it starts repeatedly": {stepDuration * 3 / 2, crashLoop, apply},
		"an apply that it gets after it gives up": {stepDuration * 3 / 2, func(a *fakeWorker) {
			a.fakePool.slowSignals = stepDuration
			crashLoop(a)
		}, apply},
		"an apply while it backs off": {stepDuration * 3 / 2, func(a *fakeWorker) {
			a.generation++
			a.report(lifecycle.Pending)
		}, apply},
		"an apply after its rollout was halted": {stepDuration * 3 / 2, func(a *fakeWorker) {
			a.fakePool.update(api.UpdateHaltRollout, api.Control{})
		}, apply},
		"a restart": {stepDuration * 3 / 2, nil, func(p *fakePool) { p.update(api.UpdateRestart, api.RestartRequest{}) }},
		"changed files": {stepDuration * 3 / 2, nil, func(p *fakePool) {
			p.env.SignalWorkflow(api.SignalFilesChanged, api.FilesChanged{Pool: "t", Files: []string{"main.py"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakePool(t)
			p.updateAt(5*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, "next")})
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
