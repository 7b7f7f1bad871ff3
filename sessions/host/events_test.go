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
	require.NoError(t, errorOf(sessions.Create(t.Context(), storeOf(t, s, "p"), &sessions.Session{ID: "first"})))
	require.Equal(t, map[string]int{spec.StoreEmbedded: 1}, s.LiveSessions(t.Context()))
	require.NoError(t, errorOf(sessions.Create(t.Context(), storeOf(t, s, ""),
		&sessions.Session{ID: "second", TTL: spec.Duration(time.Millisecond)})))
	require.Eventually(t, func() bool { return s.sweepOnce(context.Background()) == 1 }, time.Minute, time.Millisecond)
	restored := sessions.Session{ID: "restored", Version: 3, CreatedAt: time.Now(), LastAccessed: time.Now(),
		TTL: spec.Duration(time.Hour)}
	for _, want := range []sessions.Restored{sessions.RestoredNew, sessions.RestoredKept} {
		_, did, err := storeOf(t, s, "p").Put(t.Context(), &restored, sessions.ToRestore)
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
	s := New("here", t.TempDir(), slog.New(slog.DiscardHandler), Pools{}, observer)
	require.True(t, s.MoveSession("p", "s", "p/0", "p/1"), "an unbound session")
	require.True(t, s.MoveSession("p", "s", "p/0", "p/1"), "a repeated activity")
	require.False(t, s.MoveSession("p", "s", "p/0", "p/2"), "it is bound to a third worker")
	s.Affinity.Close("p/2", time.Hour)
	require.True(t, s.MoveSession("p", "s", "p/1", "p/2"), "a closed worker")
	require.Equal(t, "p/2", s.Affinity.Where("p", "s"))
	require.Equal(t, []string{"session.migrated /pools/p s", "session.migrated /pools/p s"}, *seen)
}
