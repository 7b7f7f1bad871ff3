package ready

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestWorkersOfAnEarlierAgentAreNotReady(t *testing.T) {
	began := time.Now()
	entry := func(slot int, state lifecycle.State, host string, since time.Duration) api.RosterEntry {
		return api.RosterEntry{Slot: slot, Incarnation: 1, State: state, Host: host, Since: began.Add(since)}
	}
	gone, removing := entry(4, lifecycle.Ready, "here", time.Second), entry(6, lifecycle.Draining, "here", time.Second)
	gone.Gone, removing.Removing = true, true
	tracker := Tracker{Stale: func(w api.RosterEntry) bool { return w.Host == "here" && w.Since.Before(began) }}
	p := tracker.Update(api.PoolStatus{Size: 6, Workers: []api.RosterEntry{
		entry(0, lifecycle.Ready, "here", time.Second),
		entry(1, lifecycle.Ready, "here", -time.Hour),
		entry(2, lifecycle.Busy, "elsewhere", -time.Hour),
		entry(3, lifecycle.Starting, "here", time.Second),
		gone, removing, // slot 5 is not listed yet
	}})
	require.Equal(t, "p: 2/6 ready; p/1 ready, p/3 starting, p/4 ready, and 1 more", p.Line("p"))
	require.Empty(t, p.Failing)
	require.False(t, p.Done())
}

// Starts that an open breaker delays by half a minute would reach the limit of a single worker only after minutes.
func TestAFailedStartIsEnoughWhileTheBreakerIsOpen(t *testing.T) {
	failed := api.RosterEntry{Slot: 0, Incarnation: 3, State: lifecycle.Pending, Starts: 2}
	waiting := api.RosterEntry{Slot: 1, Incarnation: 1, State: lifecycle.Pending}
	status := api.PoolStatus{Size: 2, Workers: []api.RosterEntry{failed, waiting}}
	require.Empty(t, new(Tracker).Update(status).Failing)

	status.StartsPaused = "breaker open"
	require.Equal(t, []Failing{{failed, 2}}, new(Tracker).Update(status).Failing)
	require.Empty(t, (&Tracker{Starts: map[int]int64{0: 2}}).Update(status).Failing, "of an earlier wait")
}
