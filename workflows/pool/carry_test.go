package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestAnOverduePoolContinuesWhileAWorkerIsRemoved(t *testing.T) {
	p := newFakePool(t)
	p.UpdateAt(30*time.Second, api.UpdateScale, api.ScaleRequest{Size: 2})
	p.OverdueAt(30*time.Second + 100*time.Millisecond)
	p.At(31*time.Second-100*time.Millisecond, func() {
		require.Equal(t, 2, p.runs, "the run continues as new before the worker has ended")
		require.Len(t, p.status().Workers, 3)
	})
	p.At(35*time.Second, func() {
		require.Len(t, p.status().Workers, 2)
		require.Equal(t, 2, p.open())
	})
	p.runUntil(40*time.Second, poolOf(3))
	require.Zero(t, p.open())
}

func TestAnOverduePoolContinuesWhileItStops(t *testing.T) {
	p := newFakePool(t)
	p.stopAt(30 * time.Second)
	p.OverdueAt(30*time.Second + 100*time.Millisecond)
	p.At(31*time.Second-100*time.Millisecond, func() {
		require.Equal(t, 2, p.runs)
		require.True(t, p.status().Stopping)
	})
	p.run(poolOf(3))
	require.Zero(t, p.open())
	require.Len(t, p.started, 3)
}

func TestAnOverduePoolSendsAgainWhatWasNotDelivered(t *testing.T) {
	p := newFakePool(t)
	p.At(30*time.Second, func() {
		p.slowSignals = time.Hour
		p.Update(api.UpdateRestart, api.RestartRequest{Worker: new(int), Reason: "new moon"})
		p.env.SignalWorkflow(api.SignalRotationRequest, api.RotationRequest{Slot: 1, Incarnation: 1, Cause: api.CauseUptime})
	})
	p.OverdueAt(30*time.Second + 100*time.Millisecond)
	p.At(30*time.Second+200*time.Millisecond, func() {
		require.Equal(t, 1, p.runs, "the run gives signals time to arrive")
		refused := p.Update(api.UpdateScale, api.ScaleRequest{Size: 3})
		p.In(time.Millisecond, func() {
			requireRefused(t, refused, api.CodeContinuing)
		})
	})
	p.At(35*time.Second, func() { p.slowSignals = 0 })
	p.At(40*time.Second, func() {
		require.Equal(t, 2, p.runs)
		require.Len(t, p.workers[0].timesOf(api.SignalRestart), 1)
		require.Len(t, p.workers[1].timesOf(api.SignalRotationGrant), 1)
		require.Equal(t, []string{"0 ready #2 v1", "1 ready #2 v1"}, slotsOf(p.status()))
	})
	p.runUntil(time.Minute, poolOf(2))
}

// The worker has the restart, and the run ends before it learns of that.
func TestARestartThatAnOverduePoolSendsAgainIsKnownByItsID(t *testing.T) {
	p := newFakePool(t)
	restart := func() { p.Update(api.UpdateRestart, api.RestartRequest{Worker: new(int), Reason: "new moon"}) }
	p.At(30*time.Second, func() {
		p.slowAnswers = time.Hour
		restart()
	})
	p.OverdueAt(30*time.Second + 100*time.Millisecond)
	p.At(31*time.Second, func() { p.slowAnswers = 0 })
	p.At(40*time.Second, func() {
		require.Equal(t, 2, p.runs)
		restart()
	})
	p.At(50*time.Second, func() {
		var ids []string
		for _, r := range p.workers[0].received {
			if r.name == api.SignalRestart {
				ids = append(ids, r.message.(api.Order).ID)
			}
		}
		require.Len(t, ids, 3)
		require.NotEmpty(t, ids[0])
		require.Equal(t, ids[0], ids[1], "it is sent again")
		require.NotEqual(t, ids[0], ids[2], "another restart")
	})
	p.runUntil(time.Minute, poolOf(2))
}

func TestARestartThatWaitsIsNotReplacedByAnEarlierOneThatWasSent(t *testing.T) {
	inWorkflow(t, poolOf(1), func(p *pool) {
		p.Roster = []slot{{RosterEntry: api.RosterEntry{RunID: "first"}, Started: true}}
		p.disruptions.restartWorker(0, api.CauseFiles, "sent")
		p.disruptions.sendOrders()
		require.Nil(t, p.Roster[0].Order)
		id, drain := p.Roster[0].RestartID, &pendingOrder{Kind: api.SignalDrain, Reason: "new disk"}
		p.Roster[0].Order = drain
		require.Same(t, drain, p.carry().Roster[0].Order)
		p.Roster[0].Order = nil
		require.Equal(t, "sent", p.carry().Roster[0].Order.Reason)
		require.Equal(t, id, p.Roster[0].RestartID, "the next run sends it under its ID")
		p.disruptions.restartWorker(0, api.CauseOperator, "waits")
		p.disruptions.sendOrders() // not before the worker has the first one
		require.Equal(t, &pendingOrder{Kind: api.SignalRestart, Cause: api.CauseOperator, Reason: "waits"},
			p.carry().Roster[0].Order)
		require.NotEqual(t, id, p.Roster[0].RestartID)
	})
}

// Temporal cancels one run, not the next one.
func TestACancellationThatArrivesWithTheEndOfARunStopsThePool(t *testing.T) {
	p := newFakePool(t)
	p.signalAt(5*time.Second, api.SignalForceContinue, api.Control{})
	p.At(10*time.Second, func() {
		p.env.SignalWorkflowSkippingWorkflowTask(api.SignalForceContinue, api.Control{})
		p.env.CancelWorkflow()
		p.In(5*time.Minute, func() { p.Update(api.UpdateStop, api.Control{}) })
	})
	p.run(poolOf(2))
	require.Zero(t, p.open())
	require.Less(t, p.env.Now().Sub(p.Begin), time.Minute)
}
