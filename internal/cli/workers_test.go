package cli

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
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
	r := ctl(t, f, "workers", "restart", "python", "--worker", "0", "--reason", "leak")
	requireCode(t, ExitOK, r)
	require.Equal(t, lines("python: 0/1 ready; python/0 ready", "python: 0/1 ready; python/0 starting", "python: 1/1 ready"), r.err)
	require.Equal(t, "1 worker of pool python restarted\n", r.out)
	require.Equal(t, "leak", f.pools["python"].restart.Reason)
	require.Equal(t, 0, *f.pools["python"].restart.Worker)
	require.NotEmpty(t, f.pools["python"].restart.By)
}

func TestRestartPrintsTheWorkersAsJSON(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady)})
	r := ctl(t, f, "workers", "restart", "python", "-o", "json")
	requireCode(t, ExitOK, r)
	require.JSONEq(t, `{"workers": [0, 1]}`, r.out)
	require.Nil(t, f.pools["python"].restart.Worker)
}

func TestARestartedWorkerThatDoesNotComeBackIsAFailure(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(
		roster(entry(0, lifecycle.Ready, 2, "")),
		roster(api.RosterEntry{Slot: 0, State: lifecycle.Failed, Incarnation: 3, Resting: true, Reason: "gave up"}),
	), states: map[int][]api.WorkerState{0: {state(0, lifecycle.Ready, 2)}}})
	r := ctl(t, f, "workers", "restart", "python", "--worker", "0")
	requireCode(t, ExitFailed, r)
	require.Contains(t, r.err, "worker python/0 cannot start, it has given up (failed): gave up")
}

func TestARestingWorkerIsRevivedFromTheIncarnationItRestsIn(t *testing.T) {
	resting := api.RosterEntry{Slot: 0, State: lifecycle.Stopped, Incarnation: 2, Resting: true}
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(roster(resting), roster(resting), roster(entry(0, lifecycle.Ready, 3, ""))),
		states: map[int][]api.WorkerState{0: {state(0, lifecycle.Stopped, 2)}}})
	requireCode(t, ExitOK, ctl(t, f, "workers", "restart", "python", "--worker", "0"))
}

func TestDrainOfAWholePoolWaitsUntilEveryWorkerRests(t *testing.T) {
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
	r := ctl(t, f, "workers", "drain", "python", "--reason", "maintenance", "-o", "json")
	requireCode(t, ExitOK, r)
	require.Equal(t, []string{"drain python/0", "drain python/1"}, f.requests, "a worker that rests already is left alone")
	require.Equal(t, "maintenance", f.pools["python"].control.Reason)
	var done signalResult
	require.NoError(t, json.Unmarshal([]byte(r.out), &done))
	require.Equal(t, signalResult{Pool: "python", Signal: "drain", Workers: []signaledWorker{
		{Worker: "python/0", State: lifecycle.Stopped, Incarnation: 1}, {Worker: "python/1", State: lifecycle.Killed, Incarnation: 1}}}, done)
}

func TestStopOfOneWorker(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python",
		statuses: steps(bothReady, roster(entry(0, lifecycle.Ready, 1, ""), api.RosterEntry{Slot: 1, State: lifecycle.Stopped, Resting: true})),
		states:   map[int][]api.WorkerState{1: {state(1, lifecycle.Busy, 1), state(1, lifecycle.Stopped, 1)}}})
	r := ctl(t, f, "workers", "stop", "python", "--worker", "1")
	requireCode(t, ExitOK, r)
	require.Equal(t, []string{"stop python/1"}, f.requests)
	require.Equal(t, "python/1 is stopped\n", r.out)
}

func TestSuspendOfABusyWorkerSaysWhoseLeaseItWaitsFor(t *testing.T) {
	busy := state(0, lifecycle.Busy, 1)
	busy.Lease = &api.Lease{ID: "python.0.1.1", Holder: "alice"}
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(roster(entry(0, lifecycle.Ready, 1, ""))),
		states: map[int][]api.WorkerState{0: {busy, busy, busy, state(0, lifecycle.Suspended, 1)}}})
	r := ctl(t, f, "workers", "suspend", "python")
	requireCode(t, ExitOK, r)
	require.Contains(t, r.err, "ctl: warning: worker python/0 is busy; it is suspended when alice releases lease python.0.1.1 (or run ctl checkin python.0.1.1)\n")
	require.Equal(t, "python/0 is suspended\n", r.out)

	f.pools["python"].states[0] = []api.WorkerState{busy}
	late := ctl(t, f, "workers", "suspend", "python", "--wait-timeout", "20ms")
	requireCode(t, ExitFailed, late)
	require.Contains(t, late.err, "python/0 is busy under lease python.0.1.1 of alice")
}

func TestAWorkerThatRefusesIsAFailureWithItsSentence(t *testing.T) {
	refusing := state(0, lifecycle.Stopping, 1)
	refusing.LastRefusal = "2026-03-04T12:00:00Z suspend or resume: it is stopping"
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(roster(entry(0, lifecycle.Ready, 1, ""))),
		states: map[int][]api.WorkerState{0: {state(0, lifecycle.Stopping, 1), refusing}}})
	r := ctl(t, f, "workers", "suspend", "python", "--worker", "0")
	requireCode(t, ExitFailed, r)
	require.Contains(t, r.err, "worker python/0 refused to suspend: 2026-03-04T12:00:00Z suspend or resume: it is stopping")
}

func TestResumeAsksOnlySuspendedWorkers(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady), states: map[int][]api.WorkerState{
		0: {state(0, lifecycle.Ready, 1)}, 1: {state(1, lifecycle.Suspended, 1), state(1, lifecycle.Suspended, 1), state(1, lifecycle.Ready, 1)}}})
	r := ctl(t, f, "workers", "resume", "python")
	requireCode(t, ExitOK, r)
	require.Equal(t, []string{"resume python/1"}, f.requests)
	require.Equal(t, "python/1 is ready\n", r.out)

	none := ctl(t, f, "workers", "resume", "python")
	require.Equal(t, "no worker to resume\n", none.out)
}

func TestResumeCallsASuspendOffThatWaitsForALease(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady), states: map[int][]api.WorkerState{1: {state(1, lifecycle.Busy, 1)}}})
	r := ctl(t, f, "workers", "resume", "python", "--worker", "1")
	requireCode(t, ExitOK, r)
	require.Equal(t, []string{"resume python/1"}, f.requests)
	require.Equal(t, "python/1 is busy\n", r.out)
}

func TestAWorkerThatIsWhereItIsWantedIsNotAskedAgain(t *testing.T) {
	resting := roster(api.RosterEntry{Slot: 0, State: lifecycle.Stopped, Resting: true})
	for command, c := range map[string]struct {
		status api.PoolStatus
		state  lifecycle.State
	}{
		"drain": {resting, lifecycle.Stopped}, "stop": {resting, lifecycle.Stopped},
		"suspend": {bothReady, lifecycle.Suspended}, "resume": {bothReady, lifecycle.Ready},
	} {
		for _, more := range []string{"--no-wait=false", "--no-wait"} {
			f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(c.status), states: map[int][]api.WorkerState{0: {state(0, c.state, 1)}}})
			r := ctl(t, f, "workers", command, "python", "--worker", "0", more)
			requireCode(t, ExitOK, r)
			require.Empty(t, f.requests)
			require.Equal(t, "python/0 is "+string(c.state)+"\n", r.out)
		}
	}
}

func TestAWorkerThatRestsCannotBeSuspended(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(roster(api.RosterEntry{Slot: 0, State: lifecycle.Failed, Resting: true})),
		states: map[int][]api.WorkerState{0: {state(0, lifecycle.Failed, 1)}}})
	r := ctl(t, f, "workers", "suspend", "python", "--worker", "0")
	requireCode(t, ExitFailed, r)
	require.Contains(t, r.err, "worker python/0 has no process to suspend; run ctl workers restart to start one (it is failed)")
	require.Empty(t, f.requests)
}

func TestNoWaitReturnsOnceAsked(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady), states: map[int][]api.WorkerState{0: {state(0, lifecycle.Ready, 1)}}})
	r := ctl(t, f, "workers", "drain", "python", "--worker", "0", "--no-wait")
	requireCode(t, ExitOK, r)
	require.Equal(t, "sent drain to python/0, which was ready\n", r.out)
}

func TestAWorkerThatDoesNotExistIsNamed(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", statuses: steps(bothReady)})
	r := ctl(t, f, "workers", "drain", "python", "--worker", "7", "-o", "json")
	requireCode(t, ExitFailed, r)
	require.Equal(t, "worker_not_found", failure(t, r).Code)
	require.Equal(t, "pool python has no worker 7; its workers are 0 to 1", failure(t, r).Message)
}

func exampleLease() *api.Lease {
	return &api.Lease{ID: "python.0.3.9", Worker: "python/0", Seq: 9, Incarnation: 3, Holder: "alice", Host: "h1",
		Endpoint: "http://h1:7070", GrantedAt: noon, ExpiresAt: noon.Add(time.Minute)}
}

func TestCheckoutPrintsTheLease(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", lease: &tempool.Lease{Lease: *exampleLease()}})
	r := ctl(t, f, "checkout", "python", "--holder", "alice", "--ttl", "1m", "--session", "s1")
	requireCode(t, ExitOK, r)
	require.Equal(t, lines(
		"Lease     python.0.3.9",
		"Worker    python/0",
		"Holder    alice",
		"Host      h1",
		"Endpoint  http://h1:7070",
		"Expires   2026-03-04T12:01:00Z (in 1m0s)",
		"Release   ctl checkin python.0.3.9",
	), r.out)
	require.Equal(t, tempool.CheckoutOptions{Holder: "alice", Session: "s1", TTL: time.Minute}, f.pools["python"].options)

	var lease api.Lease
	require.NoError(t, json.Unmarshal([]byte(ctl(t, f, "checkout", "python/0", "--holder", "alice", "-o", "json").out), &lease))
	require.Equal(t, *exampleLease(), lease)
	require.Equal(t, 0, *f.pools["python"].options.Slot)
}

func TestCheckoutThatFindsNobodyFreeSaysHowToWait(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", err: api.Errorf(api.CodeNoWorkers, "no worker of pool python is free")})
	r := ctl(t, f, "checkout", "python", "--holder", "me", "-o", "json")
	requireCode(t, ExitFailed, r)
	require.Equal(t, "no_workers", failure(t, r).Code)
	require.Equal(t, "no worker of pool python is free; add --wait 30s to wait for a free worker", failure(t, r).Message)

	waited := ctl(t, f, "checkout", "python", "--holder", "me", "--wait", "10ms", "-o", "json")
	requireCode(t, ExitFailed, waited)
	require.Equal(t, "queue_timeout", failure(t, waited).Code)
	o := f.pools["python"].options
	require.True(t, o.NoRenew, "the lease is to outlive ctl")
	require.Equal(t, 10*time.Millisecond, o.Wait)
}

func TestCheckinWaitsUntilTheWorkerHasTheLeaseBack(t *testing.T) {
	out := state(0, lifecycle.Busy, 3)
	out.Lease = exampleLease()
	f := newFakeControlPlane(&fakePool{name: "python", states: map[int][]api.WorkerState{0: {out, out, state(0, lifecycle.Degraded, 3)}}})
	r := ctl(t, f, "checkin", "python.0.3.9", "--outcome", "error", "--error", "empty page", "-o", "json")
	requireCode(t, ExitOK, r)
	require.Equal(t, []string{"checkin python.0.3.9 error empty page"}, f.requests)
	require.JSONEq(t, `{"lease": "python.0.3.9", "worker": "python/0", "state": "degraded"}`, r.out)
}

func TestCheckinThatIsNotTakenInTimeSaysSo(t *testing.T) {
	out := state(0, lifecycle.Busy, 3)
	out.Lease = exampleLease()
	f := newFakeControlPlane(&fakePool{name: "python", states: map[int][]api.WorkerState{0: {out}}})
	r := ctl(t, f, "checkin", "python.0.3.9", "--timeout", "20ms", "-o", "json")
	requireCode(t, ExitFailed, r)
	require.Equal(t, "timeout", failure(t, r).Code)
}

func TestCheckinOfALeaseThatIsNotOutIsFenced(t *testing.T) {
	other := state(0, lifecycle.Busy, 3)
	other.Lease = exampleLease()
	for says, s := range map[string]api.WorkerState{
		"does not exist, was released or has expired": state(0, lifecycle.Ready, 3),
		"is leased to alice as python.0.3.9":          other,
	} {
		f := newFakeControlPlane(&fakePool{name: "python", states: map[int][]api.WorkerState{0: {s}}})
		r := ctl(t, f, "checkin", "python.0.3.8", "-o", "json")
		requireCode(t, ExitFailed, r)
		require.Equal(t, "lease_fenced", failure(t, r).Code)
		require.Contains(t, failure(t, r).Message, says)
		require.Empty(t, f.requests, "a stale lease is not sent: the worker would only count it")
	}
}

func TestHistoryMarksWhatIsMissing(t *testing.T) {
	step := func(from, to lifecycle.State, event lifecycle.EventKind, at, lasted time.Duration) lifecycle.Transition {
		return lifecycle.Transition{From: from, To: to, Event: event, Reason: "because\nof this", Timestamp: noon.Add(at), DurationMS: lasted.Milliseconds()}
	}
	transitions := []lifecycle.Transition{
		step(lifecycle.Starting, lifecycle.Ready, lifecycle.StartSucceeded, time.Second, time.Second),
		step(lifecycle.Ready, lifecycle.Busy, lifecycle.Checkout, 3*time.Second, 2*time.Second),
		step(lifecycle.Ready, lifecycle.Busy, lifecycle.Checkout, time.Hour, time.Minute),
	}
	f := newFakeControlPlane(&fakePool{name: "python", history: transitions})
	f.replayErr = errors.New("this build cannot replay that run")
	all := ctl(t, f, "history", "python/0", "--all")
	requireCode(t, ExitOK, all)
	require.Equal(t, lines(
		"WHEN                  FROM      EVENT     TO     AFTER  WHY",
		historyGapLine,
		"2026-03-04T12:00:01Z  starting  started   ready  1.0s   because of this",
		"2026-03-04T12:00:03Z  ready     checkout  busy   2.0s   because of this",
		historyGapLine,
		"2026-03-04T13:00:00Z  ready     checkout  busy   1m0s   because of this",
	), all.out)
	require.Contains(t, all.err, "some transitions of python/0 are no longer available")

	newest := ctl(t, f, "history", "python/0")
	require.NotContains(t, newest.out, historyGapLine, "the newest are no claim to be all")
	require.Empty(t, newest.err)

	var list []lifecycle.Transition
	require.NoError(t, json.Unmarshal([]byte(ctl(t, f, "history", "python/0", "--all", "-o", "json").out), &list))
	require.Equal(t, transitions, list)
}

func TestHistoryWithGapsIsReplayed(t *testing.T) {
	first := lifecycle.Transition{From: lifecycle.Created, To: lifecycle.Starting, Event: lifecycle.Start, Timestamp: noon}
	second := lifecycle.Transition{From: lifecycle.Starting, To: lifecycle.Ready, Event: lifecycle.StartSucceeded, Timestamp: noon}
	f := newFakeControlPlane(&fakePool{name: "python", history: []lifecycle.Transition{second}})
	f.replayed = []lifecycle.Transition{first, second}
	r := ctl(t, f, "history", "python/0", "--all", "-o", "json")
	requireCode(t, ExitOK, r)
	require.Empty(t, r.err)
	var list []lifecycle.Transition
	require.NoError(t, json.Unmarshal([]byte(r.out), &list))
	require.Equal(t, f.replayed, list)
}

func TestHistoryOfNothingIsAnEmptyList(t *testing.T) {
	require.Equal(t, "[]\n", ctl(t, newFakeControlPlane(&fakePool{name: "python"}), "history", "python/0", "-o", "json").out)
}

func TestScaleSaysWhatChanges(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python"})
	require.Equal(t, "pool python: scaling from 1 worker to 8; run ctl ps python to follow\n", ctl(t, f, "pool", "scale", "python", "8").out)
	require.JSONEq(t, `{"from": 1, "to": 8}`, ctl(t, f, "pool", "scale", "python", "8", "-o", "json").out)
}
