package pool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

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
