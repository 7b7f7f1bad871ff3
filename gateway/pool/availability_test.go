package pool

import (
	"testing"

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
			err := availability(api.PoolStatus{Pool: "p", Workers: c.workers}, "here")
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
	err := availability(api.PoolStatus{Pool: "p", Workers: []api.RosterEntry{
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
	require.NotErrorAs(t, availability(api.PoolStatus{Pool: "p"}, "here"), &other)
}
