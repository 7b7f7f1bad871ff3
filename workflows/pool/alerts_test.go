package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

const gaveUp = `{"alert":"worker_gave_up","reason":"the model file is missing"}`

// A worker gives up during a rollout, the pool continues as new, and the next spec mends both.
func TestAlertsAreRaisedAndClearedOnce(t *testing.T) {
	for _, continues := range []bool{false, true} {
		t.Run(fmt.Sprintf("continued %v", continues), func(t *testing.T) {
			p := newFakePool(t)
			p.UpdateAt(5*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, neverStarts)})
			if continues {
				p.At(20*time.Second, func() { p.env.SignalWorkflow(api.SignalForceContinue, api.Control{}) })
			}
			p.UpdateAt(30*time.Second, api.UpdateApply, api.ApplyRequest{Spec: specOf(3, "mended")})
			p.At(60*time.Second, func() { require.Equal(t, 3, p.status().Ready) })
			p.runUntil(61*time.Second, poolOf(3))
			if continues {
				require.Greater(t, p.runs, 1)
			}
			const halted = `{"alert":"rollout_halted","reason":"halted: worker 0 did not come back: the model file is missing"}`
			require.Equal(t, []string{
				`/pools/t pool.applied {"spec_version":2}`,
				`/pools/t alert.raised ` + halted, `/pools/t/workers/0 alert.raised ` + gaveUp,
				`/pools/t pool.applied {"spec_version":3}`,
				`/pools/t alert.cleared ` + halted, `/pools/t/workers/0 alert.cleared ` + gaveUp,
			}, p.emitted)
		})
	}
}

// A build that raised no alerts hands over a state in which one holds: nothing is cleared that was not raised.
func TestAnAlertOfAStateThatDoesNotRecordItIsRaised(t *testing.T) {
	p := newFakePool(t)
	p.At(20*time.Second, func() { p.env.SignalWorkflow(api.SignalForceContinue, api.Control{}) })
	before := 0
	p.carried = func(run *Run) {
		require.Equal(t, []alert{{api.AlertWorkerGaveUp, "/pools/t/workers/0", "the model file is missing"}}, run.Raised)
		run.Raised, before = nil, len(p.emitted)
	}
	run := poolOf(1)
	run.Spec.Pool.Command = []string{neverStarts}
	p.runUntil(40*time.Second, run)
	require.Equal(t, 2, p.runs)
	require.Equal(t, []string{`/pools/t/workers/0 alert.raised ` + gaveUp, `/pools/t/workers/0 alert.cleared ` + gaveUp},
		p.emitted[before:])
}

// The problem of an alert ends between two runs, as when another build judges the same state: its end has a reason,
// too.
func TestAnAlertThatHoldsNoMoreInTheNextRunIsClearedWithAReason(t *testing.T) {
	p := newFakePool(t)
	p.At(20*time.Second, func() { p.env.SignalWorkflow(api.SignalForceContinue, api.Control{}) })
	p.carried = func(run *Run) { run.Raised = []alert{{api.AlertStartsHeld, "/pools/t", "it was"}} }
	p.runUntil(40*time.Second, poolOf(1))
	require.Equal(t, 2, p.runs)
	require.Equal(t, []string{`/pools/t alert.cleared {"alert":"starts_held","reason":"it was"}`}, p.emitted)
}
