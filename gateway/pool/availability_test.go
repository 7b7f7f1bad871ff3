package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestAvailabilityExpectsWorkersOnThisHost(t *testing.T) {
	for name, c := range map[string]struct {
		workers   []api.RosterEntry
		available bool
	}{
		"none at all": {nil, false},
		"one here":    {[]api.RosterEntry{{State: lifecycle.Ready, Host: "here"}}, true},
		"all elsewhere": {[]api.RosterEntry{{State: lifecycle.Ready, Host: "there"},
			{State: lifecycle.Busy, Host: "there"}}, false},
		"one not placed yet": {[]api.RosterEntry{{State: lifecycle.Ready, Host: "there"},
			{State: lifecycle.Pending}}, true},
		"one that crashed elsewhere":    {[]api.RosterEntry{{State: lifecycle.Failed, Host: "there"}}, true},
		"one that rests after failures": {[]api.RosterEntry{{State: lifecycle.Failed, Host: "here", Resting: true}}, false},
		"one that leaves":               {[]api.RosterEntry{{State: lifecycle.Ready, Host: "here", Removing: true}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := poolAvailability(api.PoolStatus{Pool: "p", Workers: c.workers}, "here")
			if c.available {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, api.ErrNoWorkers)
			}
		})
	}
}

func TestUnavailablePoolNamesOtherGateways(t *testing.T) {
	at := func(host string, state lifecycle.State) api.RosterEntry {
		return api.RosterEntry{State: state, Host: host, Endpoint: "http://" + host + ":7460"}
	}
	err := poolAvailability(api.PoolStatus{Pool: "p", Workers: []api.RosterEntry{
		at("one", lifecycle.Ready), at("two", lifecycle.Busy), at("two", lifecycle.Ready), at("three", lifecycle.Draining),
		{State: lifecycle.Starting, Host: "four"},
		{State: lifecycle.Ready, Host: "five", Endpoint: "http://five:7460", Removing: true},
	}}, "here")
	require.ErrorIs(t, err, api.ErrNoWorkers)
	var other api.OtherHostError
	require.ErrorAs(t, err, &other)
	require.Equal(t, []api.Peer{{Host: "two", Endpoint: "http://two:7460"}, {Host: "one", Endpoint: "http://one:7460"},
		{Host: "three", Endpoint: "http://three:7460"}}, other.Gateways)
	require.ErrorContains(t, err, "one, two, three, four")
	require.NotErrorAs(t, poolAvailability(api.PoolStatus{Pool: "p"}, "here"), &other)
}

func TestWhereAWorkerCanBeCalled(t *testing.T) {
	entry := func(slot int, state lifecycle.State, host, endpoint string) api.RosterEntry {
		return api.RosterEntry{Slot: slot, State: state, Host: host, Endpoint: endpoint}
	}
	gone, removing, resting := entry(5, lifecycle.Stopped, "", ""), entry(6, lifecycle.Draining, "here", ""), entry(7,
		lifecycle.Failed, "here", "")
	gone.Gone, removing.Removing, resting.Resting, resting.Reason = true, true, true, "gave up after 10 failures"
	status := api.PoolStatus{Pool: "p", Workers: []api.RosterEntry{
		entry(0, lifecycle.Ready, "here", "unix:/here"), entry(1, lifecycle.Pending, "", ""),
		entry(2, lifecycle.Failed, "there", "unix:/there"),
		entry(3, lifecycle.Busy, "there", "unix:/there"), entry(4, lifecycle.Starting, "there", ""), gone, removing, resting,
	}}
	for worker, want := range map[string]api.Code{
		"p/0": "", "p/1": "", "p/2": "", "p/3": api.CodeNoWorkers, "p/4": api.CodeNoWorkers,
		"p/5": api.CodeWorkerNotFound, "p/6": api.CodeWorkerNotFound, "p/7": api.CodeFailed, "p/8": api.CodeWorkerNotFound,
	} {
		err := workerAvailability(status, worker, "here")
		require.Equal(t, want, api.CodeOf(err), worker)
	}
	var elsewhere api.OtherHostError
	require.ErrorAs(t, workerAvailability(status, "p/3", "here"), &elsewhere)
	require.Equal(t, []api.Peer{{Host: "there", Endpoint: "unix:/there"}}, elsewhere.Gateways)
	require.ErrorContains(t, workerAvailability(status, "p/7", "here"), "gave up after 10 failures")

	idle := workerAvailability(api.PoolStatus{Pool: "p", Scale: &api.ScaleStatus{}}, "p/0", "here")
	require.ErrorIs(t, idle, api.ErrWorkerNotFound)
	require.ErrorContains(t, idle, "a call to the pool starts one")
}

func TestOutageFencesAfterFenceAfter(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	m := &controlPlaneMonitor{fenceAfter: time.Minute, began: began}
	require.False(t, m.fenced(began.Add(time.Hour)), "no check has failed yet")
	m.answered(began.Add(time.Hour))
	require.True(t, m.failed())
	require.False(t, m.failed(), "the outage has begun before")
	require.False(t, m.fenced(began.Add(time.Hour+59*time.Second)))
	require.True(t, m.fenced(began.Add(time.Hour+time.Minute)))
	require.Equal(t, time.Minute, m.outage(began.Add(time.Hour+time.Minute)))
	require.True(t, m.answered(began.Add(2*time.Hour)))
	require.Zero(t, m.outage(began.Add(3*time.Hour)))
}

// While Temporal does not answer, nobody can say that a lease was renewed whose time passed while its host slept.
func TestALeaseDoesNotOutlastTheSuspensionOfItsHost(t *testing.T) {
	e := newEnv(t)
	e.start(1)
	lease, err := e.dispatcher.Checkout(t.Context(), "p", CheckoutRequest{Holder: "me"}) // for an hour
	require.NoError(t, err)
	call := func() error {
		return errorOf(e.dispatcher.Call(t.Context(), lease.ID, Request{Method: "echo", Body: []byte("1")}))
	}
	e.dispatcher.monitor.failed()
	e.dispatcher.slept(time.Minute)
	require.NoError(t, call())
	e.dispatcher.slept(time.Hour)
	require.ErrorIs(t, call(), api.ErrLeaseFenced)
	e.dispatcher.monitor.answered(time.Now())
	require.NoError(t, call(), "the workflow confirms it")
}
