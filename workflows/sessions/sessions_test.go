package sessions

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

func migration(session, to string) api.MigrateSessionRequest {
	return api.MigrateSessionRequest{Pool: "t", Session: session, To: to}
}

func TestAMigrationReleasesBindsAndLoads(t *testing.T) {
	h := newFakeHosts(t, "a", "a")
	h.bindWarm("t/0", "s", "other")
	moves := executed(h, api.WorkflowMigrateSession, migration("s", "t/1"))
	require.Equal(t, []string{"look", "release t/0 s", "bind t/1 s", "load t/1 s"}, h.steps)
	require.Equal(t, "a: other on t/0, warm true\na: s on t/1, warm true", h.bindings())
	require.Equal(t, api.SessionMoves{Pool: "t", Session: "s", Moved: 1,
		Flows: []api.SessionFlow{{From: "t/0", To: "t/1", Count: 1}}}, moves)
}

func TestAMigrationToAnotherHostLeavesNoBindingBehind(t *testing.T) {
	h := newFakeHosts(t, "a", "b", "c")
	h.bindWarm("t/0", "s")
	h.bindWarm("t/2", "s") // calls came by both gateways
	executed(h, api.WorkflowMigrateSession, migration("s", "t/1"))
	require.Equal(t, "b: s on t/1, warm true", h.bindings())
	require.False(t, h.warm["t/0 s"] || h.warm["t/2 s"])
}

func TestASessionWithoutAWorkerIsBoundAndLoaded(t *testing.T) {
	h := newFakeHosts(t, "a", "a")
	fails(h, api.CodeSessionNotFound, api.WorkflowMigrateSession, migration("s", "t/1"))
	h.known["s"], h.steps = true, nil
	moves := executed(h, api.WorkflowMigrateSession, migration("s", "t/1"))
	require.Equal(t, []string{"look", "bind t/1 s", "load t/1 s"}, h.steps)
	require.Equal(t, []api.SessionFlow{{To: "t/1", Count: 1}}, moves.Flows)

	h.steps = nil
	moves = executed(h, api.WorkflowMigrateSession, migration("s", "t/1"))
	require.Equal(t, []string{"look"}, h.steps, "it is there already")
	require.NotEmpty(t, moves.Note)
}

// Whatever step of a migration goes wrong, whether it had taken effect or not, and whether it failed or the workflow
// was cancelled meanwhile, everything is as it was.
func TestAMigrationThatFailsAtAnyStepIsUndone(t *testing.T) {
	for _, hosts := range [][]string{{"a", "a"}, {"a", "b"}} {
		for _, step := range []string{"release", "bind", "unbind", "load"} {
			for _, after := range []bool{false, true} {
				for _, cancelled := range []bool{false, true} {
					if step == "unbind" && hosts[0] == hosts[1] || cancelled && step == "load" && after { // done in fact
						continue
					}
					t.Run(fmt.Sprintf("%s on %v, after %v, cancelled %v", step, hosts, after, cancelled), func(t *testing.T) {
						h := newFakeHosts(t, hosts...)
						h.bindWarm("t/0", "s", "other")
						before := h.bindings()
						done := false
						h.failStep = func(name, _ string, _ []string, now bool) error {
							if name != step || now != after || done {
								return nil
							}
							done = true
							if cancelled {
								h.env.CancelWorkflow()
								return temporal.NewCanceledError()
							}
							return permanentError(step)
						}
						_, err := execute(h, api.WorkflowMigrateSession, migration("s", "t/1"))
						require.True(t, done)
						if cancelled {
							require.True(t, temporal.IsCanceledError(err), "%v", err)
						} else {
							workflowtest.RequireCode(t, err, api.CodeWorkerCrashed)
							require.ErrorContains(t, err, "everything undone")
						}
						require.Equal(t, before, h.bindings(), "%q", h.steps)
					})
				}
			}
		}
	}
}

func TestAHookThatRefusesKeepsTheSessionWhereItWas(t *testing.T) {
	for _, step := range []string{"release", "load"} {
		h := newFakeHosts(t, "a", "b")
		h.bindWarm("t/0", "s")
		before := h.bindings()
		h.failHook = func(name, worker, session string) *api.SessionFailure {
			if name == step && (step == "release" || worker == "t/1") {
				return &api.SessionFailure{Session: session, Code: api.CodeWorkerError, Reason: "not now"}
			}
			return nil
		}
		fails(h, api.CodeWorkerError, api.WorkflowMigrateSession, migration("s", "t/1"),
			"not now")
		require.Equal(t, before, h.bindings())
	}
}

func TestAWorkerThatDidNotComeFreeIsNotDisturbedAgain(t *testing.T) {
	h := newFakeHosts(t, "a", "a")
	h.bindWarm("t/0", "s")
	h.failHook = func(_, _, session string) *api.SessionFailure {
		return &api.SessionFailure{Session: session, Code: api.CodeBusy, Reason: "leased"}
	}
	fails(h, api.CodeBusy, api.WorkflowMigrateSession, migration("s", "t/1"))
	require.Equal(t, []string{"look", "release t/0 s"}, h.steps)
}

func TestAMigrationReportsWhatCannotBeUndone(t *testing.T) {
	h := newFakeHosts(t, "a", "a")
	h.bindWarm("t/0", "s")
	h.failStep = func(step, worker string, _ []string, after bool) error {
		if step == "load" || step == "bind" && worker == "t/0" {
			return permanentError(step)
		}
		return nil
	}
	fails(h, api.CodeWorkerCrashed, api.WorkflowMigrateSession, migration("s", "t/1"),
		"not undone: it is no longer bound to t/0: bind is broken")
	require.Empty(t, h.bindings(), "it is at least not bound to a worker that could not load it")
}

func TestAnImpossibleMigrationTouchesNothing(t *testing.T) {
	h := newFakeHosts(t, "a", "a", "")
	h.workers[2].State, h.workers[2].InService = lifecycle.Pending, false
	h.bindWarm("t/0", "s")
	for to, code := range map[string]api.Code{"t/7": api.CodeWorkerNotFound, "u/1": api.CodeInvalid, "1": api.CodeInvalid,
		"t/2": api.CodeNoWorkers} {
		fails(h, code, api.WorkflowMigrateSession, migration("s", to))
	}
	fails(h, api.CodeInvalid, api.WorkflowMigrateSession, migration("", "t/1"))
	fails(h, api.CodeInvalid, api.WorkflowMigrateSession, api.MigrateSessionRequest{Pool: "T!"})
	require.NotContains(t, h.steps, "release t/0 s")
}

func rebalanceOf(every int, weights map[int]int) RebalanceRun {
	return RebalanceRun{RebalanceSessionsRequest: api.RebalanceSessionsRequest{Pool: "t", Weights: weights},
		ContinueEvery: every}
}

func evacuationOf(slot int) EvacuateRun {
	return EvacuateRun{Pool: "t", EvacuateRequest: api.EvacuateRequest{Worker: slot}}
}

func TestAnEvacuationSpreadsTheSessionsEvenlyAndKeepsOthersOff(t *testing.T) {
	for _, every := range []int{0, 1, 2} {
		h := newFakeHosts(t, "a", "a", "b", "b")
		h.bindWarm("t/0", sessionIDs("s", 1700)...)
		h.bindWarm("t/1", sessionIDs("x", 100)...)
		run := evacuationOf(0)
		run.ContinueEvery = every
		moves := executed(h, api.WorkflowEvacuateWorker, run)
		require.Equal(t, map[string]int{"t/1": 600, "t/2": 600, "t/3": 600}, h.counts())
		require.Equal(t, 1700, moves.Moved)
		require.Zero(t, moves.Skipped)
		require.Equal(t, api.DefaultSessionExclusion, h.excluded["t/0"])
		require.Equal(t, map[int]int{0: 1, 1: 4, 2: 2}[every], h.runs)
		require.NotContains(t, h.bindings(), "warm false")
	}
}

func TestAnEvacuationRetriesAndThenReportsWhatCannotMove(t *testing.T) {
	h := newFakeHosts(t, "a", "a", "a")
	h.bindWarm("t/0", sessionIDs("s", 10)...)
	refusals := map[string]int{}
	h.failHook = func(step, _, session string) *api.SessionFailure {
		if step != "release" || session != "s00003" && (session != "s00007" || refusals[session] > 0) {
			return nil
		}
		refusals[session]++
		return &api.SessionFailure{Session: session, Code: api.CodeWorkerError, Reason: "failHook"}
	}
	moves := executed(h, api.WorkflowEvacuateWorker, evacuationOf(0))
	require.Equal(t, 9, moves.Moved)
	require.Equal(t, 1, moves.Skipped)
	require.Len(t, moves.Skips, 1)
	require.Equal(t, "s00003", moves.Skips[0].Session)
	require.Equal(t, map[string]int{"s00003": 3, "s00007": 1}, refusals, "no more often than there is hope")
	require.Equal(t, 1, h.counts()["t/0"])
}

func TestAWorkerThatCannotLoadGetsNoneAndTheOthersTakeThem(t *testing.T) {
	h := newFakeHosts(t, "a", "b", "c")
	h.bindWarm("t/0", sessionIDs("s", 40)...)
	h.failStep = func(step, worker string, _ []string, _ bool) error {
		if worker == "t/1" && step == "load" {
			h.workers[1].InService = false // it has crashed, as the pool knows by the next look
			return permanentError("load")
		}
		return nil
	}
	moves := executed(h, api.WorkflowEvacuateWorker, evacuationOf(0))
	require.Equal(t, 40, moves.Moved)
	require.Equal(t, map[string]int{"t/2": 40}, h.counts())
}

func TestACancelledEvacuationUndoesWhatIsOnItsWayAndLetsSessionsInAgain(t *testing.T) {
	h := newFakeHosts(t, "a", "a")
	h.bindWarm("t/0", sessionIDs("s", 600)...)
	h.cancelAt(2, "load")
	_, err := execute(h, api.WorkflowEvacuateWorker, evacuationOf(0))
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Equal(t, map[string]int{"t/0": 100, "t/1": 500}, h.counts())
	require.NotContains(t, h.bindings(), "warm false")
	require.Zero(t, h.excluded["t/0"])
}

func TestAnEvacuationNeedsAWorkerToTakeTheSessions(t *testing.T) {
	h := newFakeHosts(t, "a", "a", "a")
	h.workers[1].InService = false
	h.excluded["t/2"] = time.Minute // it is evacuated, too
	h.bindWarm("t/0", "s")
	before := h.bindings()
	fails(h, api.CodeNoWorkers, api.WorkflowEvacuateWorker, evacuationOf(0))
	require.Equal(t, before, h.bindings())
	require.Zero(t, h.excluded["t/0"])

	fails(h, api.CodeWorkerNotFound, api.WorkflowEvacuateWorker, evacuationOf(9))
	tooLong := evacuationOf(0)
	span := spec.Duration(48 * time.Hour)
	tooLong.ExcludeFor = &span
	fails(h, api.CodeInvalid, api.WorkflowEvacuateWorker, tooLong)

	h.workers[0].State, h.workers[0].InService = lifecycle.Failed, false
	moves := executed(h, api.WorkflowEvacuateWorker, evacuationOf(0))
	require.Contains(t, moves.Note, "no process")
}

func TestARebalancingMovesTheFewest(t *testing.T) {
	for _, every := range []int{0, 1} {
		h := newFakeHosts(t, "a", "a", "b", "b")
		h.bindWarm("t/0", sessionIDs("s", 1300)...)
		h.bindWarm("t/1", sessionIDs("x", 101)...)
		h.bindWarm("t/2", sessionIDs("y", 699)...)
		run := rebalanceOf(every, nil)
		moves := executed(h, api.WorkflowRebalanceSessions, run)
		require.Equal(t, map[string]int{"t/0": 525, "t/1": 525, "t/2": 525, "t/3": 525}, h.counts())
		require.Equal(t, 1300-525+699-525, moves.Moved)
		require.NotContains(t, h.bindings(), "warm false")
		require.Equal(t, map[int]bool{0: false, 1: true}[every], h.runs > 1)

		again := executed(h, api.WorkflowRebalanceSessions, run)
		require.Zero(t, again.Moved)
		require.NotEmpty(t, again.Note)
	}
}

// The page that is under way when it is cancelled may be the last one of a run.
func TestACancelledRebalancingUndoesWhatIsOnItsWayAndEnds(t *testing.T) {
	for _, every := range []int{0, 1} {
		h := newFakeHosts(t, "a", "a")
		h.bindWarm("t/0", sessionIDs("s", 2000)...)
		h.cancelAt(1, "load")
		_, err := execute(h, api.WorkflowRebalanceSessions, rebalanceOf(every, nil))
		require.True(t, temporal.IsCanceledError(err), "%v", err)
		require.Equal(t, 1, h.runs)
		require.Equal(t, map[string]int{"t/0": 2000}, h.counts())
		require.NotContains(t, h.bindings(), "warm false")
	}
}

func TestARebalancingFollowsWeightsAndLeavesTheOthersAlone(t *testing.T) {
	h := newFakeHosts(t, "a", "a", "a", "a")
	h.bindWarm("t/0", sessionIDs("s", 90)...)
	h.bindWarm("t/3", sessionIDs("x", 7)...)
	executed(h, api.WorkflowRebalanceSessions, rebalanceOf(0, map[int]int{0: 1, 1: 2}))
	require.Equal(t, map[string]int{"t/0": 30, "t/1": 60, "t/3": 7}, h.counts())

	h.excluded["t/2"] = time.Minute
	executed(h, api.WorkflowRebalanceSessions, rebalanceOf(0, nil))
	require.Equal(t, 0, h.counts()["t/2"], "an evacuated worker gets none")

	for code, weights := range map[api.Code]map[int]int{
		api.CodeWorkerNotFound: {9: 1}, api.CodeInvalid: {0: -1},
	} {
		fails(h, code, api.WorkflowRebalanceSessions, rebalanceOf(0, weights))
	}
	fails(h, api.CodeInvalid, api.WorkflowRebalanceSessions, rebalanceOf(0, map[int]int{0: 0, 1: 0}),
		policy.ErrSessions.Error())
}

func TestARebalancingTakesOthersForThoseThatCannotMove(t *testing.T) {
	h := newFakeHosts(t, "a", "a")
	h.bindWarm("t/0", sessionIDs("s", 10)...)
	h.failHook = func(step, _, session string) *api.SessionFailure {
		if step == "release" && session < "s00002" {
			return &api.SessionFailure{Session: session, Code: api.CodeWorkerError, Reason: "failHook"}
		}
		return nil
	}
	moves := executed(h, api.WorkflowRebalanceSessions, rebalanceOf(0, nil))
	require.Equal(t, map[string]int{"t/0": 5, "t/1": 5}, h.counts())
	require.Equal(t, 2, moves.Skipped)
}

func TestASessionWorkflowThatCannotStartReturnsACodedError(t *testing.T) {
	for _, step := range []string{"roster", "look", "keep off"} {
		for name, input := range map[string]any{
			api.WorkflowMigrateSession: migration("s", "t/1"), api.WorkflowEvacuateWorker: evacuationOf(0),
			api.WorkflowRebalanceSessions: rebalanceOf(0, nil),
		} {
			if step == "keep off" && name != api.WorkflowEvacuateWorker {
				continue
			}
			h := newFakeHosts(t, "a", "a")
			h.bindWarm("t/0", sessionIDs("s", 3)...)
			before := h.bindings()
			h.failStep = func(now, _ string, _ []string, _ bool) error {
				if now == step {
					return temporal.NewNonRetryableApplicationError("there is none", string(api.CodePoolNotFound), nil)
				}
				return nil
			}
			fails(h, api.CodePoolNotFound, name, input, ": there is none")
			require.Equal(t, before, h.bindings())
		}
	}
}
