package host

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/affinity"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker/metrics"
)

// testObserver is an observer without readers.
func testObserver() *Observer {
	return &Observer{HostID: "here", Stats: metrics.NewSessionStats(), Emit: (*events.Log)(nil).Emit}
}

// emitted collects events as "type source session".
func emitted(o *Observer) *[]string {
	var all []string
	o.Emit = func(eventType, source string, _ time.Time, data any) {
		all = append(all, eventType+" "+source+" "+data.(api.SessionEvent).Session)
	}
	return &all
}

func TestWhatHappensToSessionsIsEmitted(t *testing.T) {
	observer := testObserver()
	seen := emitted(observer)
	s := New("here", t.TempDir(), slog.New(slog.DiscardHandler), fakeOwner{host: "here"}.pools(), observer)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	settings := spec.Default().Sessions
	settings.Max, settings.OnFull = 1, spec.OnFullEvict
	s.pools["p"] = &poolSessions{settings: settings, processes: 1}
	calls, err := s.Of(t.Context(), "p")
	require.NoError(t, err)
	require.NoError(t, errorOf(calls.Store.Create(t.Context(), &sessions.Session{ID: "first"})))
	require.Equal(t, map[string]int{spec.StoreEmbedded: 1}, s.LiveSessions(t.Context()))
	calls, err = s.Of(t.Context(), "")
	require.NoError(t, err)
	_, err = calls.Store.Create(t.Context(), &sessions.Session{ID: "second", TTL: spec.Duration(time.Millisecond)})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.sweepOnce(context.Background()) == 1 }, time.Minute, time.Millisecond)
	calls, err = s.Of(t.Context(), "p")
	require.NoError(t, err)
	restored := sessions.Session{ID: "restored", Version: 3, CreatedAt: time.Now(), LastAccessed: time.Now(),
		TTL: spec.Duration(time.Hour)}
	for _, want := range []sessions.Restored{sessions.RestoredNew, sessions.RestoredKept} {
		did, err := calls.Store.Restore(t.Context(), &restored)
		require.NoError(t, err)
		require.Equal(t, want, did)
	}
	require.Equal(t, []string{
		"session.created /pools/p first", "session.evicted /hosts/here first", "session.created /hosts/here second",
		"session.expired /hosts/here second",
		"session.created /pools/p restored",
	}, *seen)
}

func TestAMoveIsEmittedOnce(t *testing.T) {
	observer := testObserver()
	seen := emitted(observer)
	bindings := Bindings{affinity.New(nil), observer}
	require.True(t, bindings.Move("p", "s", "p/0", "p/1"))
	require.True(t, bindings.Move("p", "s", "p/0", "p/1"), "a repeated activity")
	require.False(t, bindings.Move("p", "s", "p/0", "p/2"))
	require.Equal(t, []string{"session.migrated /pools/p s"}, *seen)
}

func TestABindingIsEmittedOnceUntilTheSessionHasAnotherWorker(t *testing.T) {
	observer := testObserver()
	seen := emitted(observer)
	bindings := Bindings{affinity.New(nil), observer}
	bindings.Follow("p", "s", "", "p/0")
	bindings.Follow("p", "s", "p/0", "p/0")
	bindings.Follow("p", "s", "p/1", "p/2") // it was moved meanwhile
	bindings.Follow("p", "s", "p/0", "p/1")
	bindings.Bind("p", "s", "p/2")
	bindings.Bind("p", "s", "p/2")
	require.Equal(t, []string{"session.bound /pools/p s", "session.bound /pools/p s", "session.bound /pools/p s"}, *seen)
}

// Another request binds the session while one does: each event names the worker that the session left.
func TestABindingIsEmittedWithTheWorkerThatTheSessionLeft(t *testing.T) {
	for at := 1; at <= 3; at++ { // each time that Bind reads the clock
		observer := testObserver()
		var events []api.SessionEvent
		observer.Emit = func(_, _ string, _ time.Time, data any) { events = append(events, data.(api.SessionEvent)) }
		var bindings Bindings
		asked := 0
		bindings = Bindings{affinity.New(func() time.Time {
			if asked++; asked == at {
				bindings.Bind("p", "s", "p/1")
			}
			return time.Now()
		}), observer}
		bindings.Bind("p", "s", "p/2")
		was := ""
		for _, e := range events {
			require.Equal(t, was, e.From, "%+v", events)
			was = e.Worker
		}
		require.Equal(t, "p/2", was)
	}
}
