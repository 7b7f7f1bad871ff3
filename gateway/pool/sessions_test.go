package pool

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/sessions/affinity"
)

func always(string, bool) bool { return true }

// requireBound checks that sessions were bound as "from to".
func requireBound(t *testing.T, d *Dispatcher, want ...string) {
	t.Helper()
	emitted, _, _ := d.config.Events.FromOldest(events.Filter{Types: []string{api.EventSessionBound}}).Read()
	var bound []string
	for _, event := range emitted {
		var read struct{ Data api.SessionEvent }
		require.NoError(t, json.Unmarshal(event.JSON, &read))
		require.Equal(t, "s", read.Data.Session)
		require.Equal(t, "here", read.Data.Host)
		bound = append(bound, read.Data.From+" "+read.Data.Worker)
	}
	require.Equal(t, want, bound)
}

func TestACallBindsItsSessionUnlessItWasMovedOrTheWorkerIsClosed(t *testing.T) {
	e, _, p := served(t)
	table := e.dispatcher.config.Affinity
	held := e.hold()
	call := e.callOfSession()
	require.Eventually(t, func() bool { return locked(p, p.queue.Len) == 1 }, timeout, poll)
	table.Put("p", "s", "p/7", always)
	held()
	require.NoError(t, <-call)
	require.Equal(t, "p/7", table.Where("p", "s"), "it was moved while the call waited")
	require.NoError(t, <-e.callOfSession())
	require.Equal(t, "p/0", table.Where("p", "s"), "the worker that served it last")

	table.Close("p/0", time.Hour)
	require.NoError(t, <-e.callOfSession())
	require.Equal(t, "p/0", table.Where("p", "s"), "it stays bound to a closed worker")
	table.Put("p", "s", "", always)
	require.NoError(t, <-e.callOfSession())
	require.Empty(t, table.Where("p", "s"), "a closed worker gets no new session")
	table.Close("p/0", 0)
	for range 2 {
		require.NoError(t, <-e.callOfSession())
		require.Equal(t, "p/0", table.Where("p", "s"))
	}
	requireBound(t, e.dispatcher, "p/7 p/0", " p/0")
	counted := e.dispatcher.Snapshot().Pools[0]
	require.Equal(t, []int64{3, 3}, []int64{counted.Hits, counted.Misses})
	require.Equal(t, 1, counted.Bindings)
}

// Another request binds the session while one does: each event names the worker that the session left.
func TestABindingIsEmittedWithTheWorkerThatTheSessionLeft(t *testing.T) {
	d, asked := &Dispatcher{config: Config{HostID: "here", Events: events.New("here")}}, 0
	d.config.Affinity = affinity.New(func() time.Time {
		if asked++; asked == 1 {
			d.BindSession("p", "s", "p/1", always)
		}
		return time.Now()
	})
	for range 2 {
		require.True(t, d.BindSession("p", "s", "p/2", always))
	}
	requireBound(t, d, " p/1", "p/1 p/2")
}
