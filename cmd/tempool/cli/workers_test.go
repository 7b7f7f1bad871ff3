package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func state(slot int, s lifecycle.State, incarnation int64) api.WorkerState {
	return api.WorkerState{Worker: api.WorkerName("python", slot), State: s, Incarnation: incarnation}
}

func TestRestartOfOneWorkerWaitsForAHigherIncarnation(t *testing.T) {
	// The pool's roster lags behind: the worker itself is at incarnation 4 when its restart is asked for.
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(
		roster(entry(0, lifecycle.Ready, 3, ""), entry(1, lifecycle.Ready, 1, "")),
		roster(entry(0, lifecycle.Ready, 4, ""), entry(1, lifecycle.Ready, 1, "")),
		roster(entry(0, lifecycle.Starting, 5, ""), entry(1, lifecycle.Ready, 1, "")),
		roster(entry(0, lifecycle.Ready, 5, ""), entry(1, lifecycle.Ready, 1, "")),
	), states: map[int][]api.WorkerState{0: {state(0, lifecycle.Ready, 4)}}})
	r := succeed(t, f, "workers", "restart", "python/0", "--reason", "leak")
	require.Equal(t, lines("python: 0/1 ready; python/0 ready", "python: 0/1 ready; python/0 starting",
		"python: 1/1 ready"), r.err)
	require.Equal(t, "1 worker of pool python restarted\n", r.out)
	require.Equal(t, "leak", f.pools["python"].restart.Reason)
	require.Equal(t, 0, *f.pools["python"].restart.Worker)
	require.NotEmpty(t, f.pools["python"].restart.By)
}

func TestReleaseSaysWhoseProcessEnds(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", released: map[int]api.ReleaseResult{
		0: {Worker: "python/0", Incarnation: 3, Process: 12, Key: &api.KeyUse{Key: "0a1b2c3d"}, InFlight: 2},
		1: {Worker: "python/1", Incarnation: 1, Process: 1}}})
	r := succeed(t, f, "workers", "release", "python/0")
	require.Equal(t, "python/0 ends the process of key 0a1b2c3d after its calls (2 in flight)\n", r.out)
	require.Equal(t, "python/1 serves no key\n", succeed(t, f, "workers", "release", "python/1").out)
	r = succeed(t, f, "workers", "release", "python/1", "-o", "json")
	require.JSONEq(t, `{"worker": "python/1", "incarnation": 1, "process": 1, "key": null, "in_flight": 0}`, r.out)
}

func TestRestartPrintsTheWorkersAsJSON(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady)})
	r := succeed(t, f, "workers", "restart", "python", "-o", "json")
	require.JSONEq(t, `{"workers": [0, 1]}`, r.out)
	require.Nil(t, f.pools["python"].restart.Worker)
}

func TestRestartFailsIfTheWorkerGivesUp(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(
		roster(entry(0, lifecycle.Ready, 2, "")),
		roster(api.RosterEntry{Slot: 0, State: lifecycle.Failed, Incarnation: 3, Resting: true, Reason: "gave up"}),
	), states: map[int][]api.WorkerState{0: {state(0, lifecycle.Ready, 2)}}})
	r := fail(t, f, "workers", "restart", "python/0")
	require.Contains(t, r.err, "worker python/0 cannot start, it has given up (failed): gave up")
}

func TestRestartOfARestingWorkerWaitsForAHigherIncarnation(t *testing.T) {
	resting := api.RosterEntry{Slot: 0, State: lifecycle.Stopped, Incarnation: 2, Resting: true}
	f := newFakeControlPlane(&fakePool{name: "python",
		statuses: steps(roster(resting), roster(resting), roster(entry(0, lifecycle.Ready, 3, ""))),
		states:   map[int][]api.WorkerState{0: {state(0, lifecycle.Stopped, 2)}}})
	succeed(t, f, "workers", "restart", "python/0")
}

func TestDrainOfAPoolWaitsUntilEveryWorkerRests(t *testing.T) {
	rest := func(slot int) api.RosterEntry {
		return api.RosterEntry{Slot: slot, State: lifecycle.Stopped, Incarnation: 1, Resting: true}
	}
	f := newFakeControlPlane(&fakePool{name: "python",
		statuses: steps(
			roster(entry(0, lifecycle.Ready, 1, ""), entry(1, lifecycle.Ready, 1, ""), rest(2)),
			roster(rest(0), entry(1, lifecycle.Draining, 1, ""), rest(2)),
			roster(rest(0), rest(1), rest(2))),
		states: map[int][]api.WorkerState{
			0: {state(0, lifecycle.Ready, 1), state(0, lifecycle.Stopped, 1)},
			1: {state(1, lifecycle.Busy, 1), state(1, lifecycle.Draining, 1), state(1, lifecycle.Killed, 1)},
			2: {state(2, lifecycle.Stopped, 1)},
		}})
	r := succeed(t, f, "workers", "drain", "python", "--reason", "maintenance", "-o", "json")
	require.Equal(t, []string{"drain python/0", "drain python/1"}, f.requests, "a worker that rests already is left alone")
	require.Equal(t, "maintenance", f.pools["python"].control.Reason)
	done := decode[signalResult](t, r)
	require.Equal(t, signalResult{Pool: "python", Signal: "drain", Workers: []*signaledWorker{
		{Worker: "python/0", State: lifecycle.Stopped, Incarnation: 1},
		{Worker: "python/1", State: lifecycle.Killed, Incarnation: 1}}}, done)
}

func TestStopOfOneWorker(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python",
		statuses: steps(bothReady, roster(entry(0, lifecycle.Ready, 1, ""),
			api.RosterEntry{Slot: 1, State: lifecycle.Stopped, Resting: true})),
		states: map[int][]api.WorkerState{1: {state(1, lifecycle.Busy, 1), state(1, lifecycle.Stopped, 1)}}})
	r := succeed(t, f, "workers", "stop", "python/1")
	require.Equal(t, []string{"stop python/1"}, f.requests)
	require.Equal(t, "python/1 is stopped\n", r.out)
}

func TestSuspendOfABusyWorkerNamesTheLease(t *testing.T) {
	busy := state(0, lifecycle.Busy, 1)
	busy.Lease = &api.Lease{ID: "python.0.1.1", Holder: "alice"}
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(roster(entry(0, lifecycle.Ready, 1, ""))),
		states: map[int][]api.WorkerState{0: {busy, busy, busy, state(0, lifecycle.Suspended, 1)}}})
	r := succeed(t, f, "workers", "suspend", "python")
	require.Contains(t, r.err, "tempool: warning: worker python/0 is busy; it will be suspended when alice returns lease "+
		"python.0.1.1 (or run tempool checkin python.0.1.1), or when rotation.drain_timeout is over\n")
	require.Equal(t, "python/0 is suspended\n", r.out)

	f.pools["python"].states[0] = []api.WorkerState{busy}
	late := fail(t, f, "workers", "suspend", "python", "--wait-timeout", "20ms")
	require.Contains(t, late.err, "is not done after 20ms; python/0 busy; the signal stays in effect")
}

func TestARefusedSignalFailsWithTheWorkersReason(t *testing.T) {
	refusing := state(0, lifecycle.Stopping, 1)
	refusing.LastRefusal = "2026-03-04T12:00:00Z suspend or resume: it is stopping"
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(roster(entry(0, lifecycle.Ready, 1, ""))),
		states: map[int][]api.WorkerState{0: {state(0, lifecycle.Stopping, 1), refusing}}})
	r := fail(t, f, "workers", "suspend", "python/0")
	require.Contains(t, r.err, "worker python/0 refused to suspend: 2026-03-04T12:00:00Z "+
		"suspend or resume: it is stopping")
}

func TestResumeSignalsOnlySuspendedWorkers(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady), states: map[int][]api.WorkerState{
		0: {state(0, lifecycle.Ready, 1)},
		1: {state(1, lifecycle.Suspended, 1), state(1, lifecycle.Suspended, 1), state(1, lifecycle.Ready, 1)}}})
	r := succeed(t, f, "workers", "resume", "python")
	require.Equal(t, []string{"resume python/1"}, f.requests)
	require.Equal(t, "python/1 is ready\n", r.out)

	none := ctl(t, f, "workers", "resume", "python")
	require.Equal(t, "no worker to resume\n", none.out)
}

func TestResumeCancelsAPendingSuspend(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady),
		states: map[int][]api.WorkerState{1: {state(1, lifecycle.Busy, 1)}}})
	r := succeed(t, f, "workers", "resume", "python/1")
	require.Equal(t, []string{"resume python/1"}, f.requests)
	require.Equal(t, "python/1 is busy\n", r.out)
}

func TestWorkersInTheTargetStateGetNoSignal(t *testing.T) {
	resting := roster(api.RosterEntry{Slot: 0, State: lifecycle.Stopped, Resting: true})
	for command, c := range map[string]struct {
		status api.PoolStatus
		state  lifecycle.State
	}{
		"drain": {resting, lifecycle.Stopped}, "stop": {resting, lifecycle.Stopped},
		"suspend": {bothReady, lifecycle.Suspended}, "resume": {bothReady, lifecycle.Ready},
	} {
		for _, more := range []string{"--no-wait=false", "--no-wait"} {
			f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(c.status),
				states: map[int][]api.WorkerState{0: {state(0, c.state, 1)}}})
			r := succeed(t, f, "workers", command, "python/0", more)
			require.Empty(t, f.requests)
			require.Equal(t, "python/0 is "+string(c.state)+"\n", r.out)
		}
	}
}

// The pool starts it again when its host has memory, unless an operator stops it, too.
func TestAWorkerThatIsStoppedForMemoryGetsAnOperatorsStop(t *testing.T) {
	stopped := roster(api.RosterEntry{Slot: 0, State: lifecycle.Stopped, Resting: true})
	stopped.StoppedForMemory = []int{0}
	for _, command := range []string{"drain", "stop"} {
		f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(stopped),
			states: map[int][]api.WorkerState{0: {state(0, lifecycle.Stopped, 1)}}})
		r := succeed(t, f, "workers", command, "python/0")
		require.Equal(t, []string{command + " python/0"}, f.requests)
		require.Equal(t, "python/0 is stopped\n", r.out)
	}
}

func TestARestingWorkerCannotBeSuspended(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python",
		statuses: steps(roster(api.RosterEntry{Slot: 0, State: lifecycle.Failed, Resting: true})),
		states:   map[int][]api.WorkerState{0: {state(0, lifecycle.Failed, 1)}}})
	r := fail(t, f, "workers", "suspend", "python/0")
	require.Contains(t, r.err, "worker python/0 has no process to suspend; run tempool workers restart to start one "+
		"(it is "+
		"failed)")
	require.Empty(t, f.requests)
}

func TestNoWaitReturnsAfterTheSignal(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady),
		states: map[int][]api.WorkerState{0: {state(0, lifecycle.Ready, 1)}}})
	r := succeed(t, f, "workers", "drain", "python/0", "--no-wait")
	require.Equal(t, "sent drain to python/0, which was ready\n", r.out)
}

func TestAnUnknownWorkerIsNamed(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady)})
	r := fail(t, f, "workers", "drain", "python/7", "-o", "json")
	require.Equal(t, "worker_not_found", failure(t, r).Code)
	require.Equal(t, "pool python has no worker 7; tempool ps python lists its workers", failure(t, r).Message)
}
