package cli

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
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
	released := map[string]api.ReleaseResult{
		"0": {Worker: "python/0", Incarnation: 3, Process: 12, Key: &api.KeyUse{Key: "0a1b2c3d"}, InFlight: 2},
		"1": {Worker: "python/1", Incarnation: 1, Process: 1}}
	f := newFakeControlPlane(&fakePool{name: "python",
		gateway: startGateway(t, "tcp", func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(released[path.Base(path.Dir(r.URL.Path))])
		})})
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

func TestRestartOfARestingWorkerWaitsForAHigherIncarnationAndFailsIfThatRests(t *testing.T) {
	resting := api.RosterEntry{Slot: 0, State: lifecycle.Stopped, Incarnation: 2, Resting: true}
	gaveUp := api.RosterEntry{Slot: 0, State: lifecycle.Failed, Incarnation: 3, Resting: true, Reason: "gave up"}
	f := newFakeControlPlane(&fakePool{name: "python",
		statuses: steps(roster(resting), roster(resting), roster(gaveUp)),
		states:   map[int][]api.WorkerState{0: {state(0, lifecycle.Stopped, 2)}}})
	r := fail(t, f, "workers", "restart", "python/0")
	require.Contains(t, r.err, "worker python/0 cannot start, it has given up (failed): gave up")
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

func TestAWorkerThatFailsKeepsNoSignalFromTheOthers(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(
		roster(entry(0, lifecycle.Ready, 1, ""), entry(1, lifecycle.Ready, 1, ""), entry(2, lifecycle.Ready, 1, ""))),
		states: map[int][]api.WorkerState{ // python/0 does not answer
			1: {state(1, lifecycle.Ready, 1)},
			2: {state(2, lifecycle.Ready, 1), state(2, lifecycle.Suspended, 1)},
		},
		signalErrors: map[int]error{1: api.Errorf(api.CodeUnavailable, "Temporal is slow")}})
	r := fail(t, f, "workers", "suspend", "python")
	require.Equal(t, []string{"suspend python/0", "suspend python/1", "suspend python/2"}, f.requests)
	require.Equal(t, "python/2 is suspended\n", r.out)
	require.Contains(t, r.err, "sent suspend to python/0, but it does not answer")
	require.Contains(t, r.err, "cannot send suspend to python/1: Temporal is slow")

	f = newFakeControlPlane(&fakePool{name: "python", statusErrors: []error{api.ErrUnavailable}})
	require.Contains(t, fail(t, f, "workers", "suspend", "python/0").err, "sent suspend to python/0")
	require.Equal(t, []string{"suspend python/0"}, f.requests, "a signal needs no pool that answers")
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

func TestAnUnknownWorkerIsNamed(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady)})
	r := fail(t, f, "workers", "drain", "python/7", "-o", "json")
	require.Equal(t, "worker_not_found", failure(t, r).Code)
	require.Equal(t, "pool python has no worker 7; tempool ps python lists its workers", failure(t, r).Message)
}

func TestASignalOfOneWorker(t *testing.T) {
	rests := roster(api.RosterEntry{Slot: 0, State: lifecycle.Stopped, Resting: true})
	forMemory := rests // the pool starts it again when its host has memory, unless an operator stops it, too
	forMemory.StoppedForMemory = []int{0}
	refusing := state(0, lifecycle.Stopping, 1)
	refusing.LastRefusal = "12:00 suspend or resume: it is stopping"
	is := func(s lifecycle.State) api.WorkerState { return state(0, s, 1) }
	for _, c := range []struct {
		line     string
		statuses []api.PoolStatus
		states   []api.WorkerState
		sent     bool
		says     string // a line of output, or a part of the error
	}{
		{"stop", steps(bothReady, rests), steps(is(lifecycle.Busy), is(lifecycle.Stopped)), true, "python/0 is stopped\n"},
		{"resume", steps(bothReady), steps(is(lifecycle.Busy)), true, "python/0 is busy\n"}, // cancels a pending suspend
		{"drain --no-wait", steps(bothReady), steps(is(lifecycle.Ready)), true,
			"sent drain to python/0, which was ready\n"},
		{"suspend", steps(bothReady), steps(is(lifecycle.Stopping), refusing), true,
			"worker python/0 refused to suspend: 12:00 suspend or resume: it is stopping"},
		{"suspend", steps(rests), steps(is(lifecycle.Failed)), false,
			"worker python/0 has no process to suspend; run tempool workers restart to start one (it is failed)"},
		{"drain", steps(forMemory), steps(is(lifecycle.Stopped)), true, "python/0 is stopped\n"},
		{"stop", steps(forMemory), steps(is(lifecycle.Stopped)), true, "python/0 is stopped\n"},
		// where the signal leads already
		{"drain", steps(rests), steps(is(lifecycle.Stopped)), false, "python/0 is stopped\n"},
		{"stop --no-wait", steps(rests), steps(is(lifecycle.Stopped)), false, "python/0 is stopped\n"},
		{"suspend", steps(bothReady), steps(is(lifecycle.Suspended)), false, "python/0 is suspended\n"},
		{"resume --no-wait", steps(bothReady), steps(is(lifecycle.Ready)), false, "python/0 is ready\n"},
	} {
		f := newFakeControlPlane(&fakePool{name: "python", statuses: c.statuses,
			states: map[int][]api.WorkerState{0: c.states}})
		signal, _, _ := strings.Cut(c.line, " ")
		r := ctl(t, f, append(strings.Fields("workers "+c.line), "python/0")...)
		if strings.HasSuffix(c.says, "\n") {
			requireCode(t, ExitOK, r)
			require.Equal(t, c.says, r.out, c.line)
		} else {
			requireCode(t, ExitFailed, r)
			require.Contains(t, r.err, c.says)
		}
		require.Equal(t, map[bool][]string{true: {signal + " python/0"}}[c.sent], f.requests, c.line)
	}
}
