package host

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// waitTimeout bounds every wait; only a failing test takes so long.
const waitTimeout = 2 * time.Minute

// newTestStores makes stores in a folder for a pool p that uses the embedded store and has workers on these hosts.
func newTestStores(t *testing.T, dir string, hosts *[]string) *Stores {
	pools := fakeOwner{}.pools()
	pools.Status = func(context.Context, string) (api.PoolStatus, error) {
		status := api.PoolStatus{Spec: spec.Default(), SessionsHost: "here"}
		for _, host := range *hosts {
			status.Workers = append(status.Workers, api.RosterEntry{Host: host})
		}
		return status, nil
	}
	s := New("here", dir, slog.New(slog.DiscardHandler), pools, testObserver())
	s.pools["p"] = &poolSessions{settings: spec.Default().Sessions, processes: 1}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

// storeOf is where the sessions of a pool are.
func storeOf(t *testing.T, s *Stores, pool string) sessions.Store {
	t.Helper()
	of, err := s.Of(t.Context(), pool)
	require.NoError(t, err)
	return of.Store
}

func runStep(t *testing.T, s *Stores, step api.CopyStep) api.SessionCopy {
	t.Helper()
	report, err := s.StepSessionCopy(t.Context(), api.SessionCopyStep{Step: step})
	require.NoError(t, err)
	return report
}

func awaitInStep(t *testing.T, s *Stores) {
	t.Helper()
	require.Eventually(t, func() bool { return s.SessionCopy().InSync }, waitTimeout, 5*time.Millisecond)
}

func TestACopyIsRefusedIfItCouldLoseSessions(t *testing.T) {
	server := redistest.Start(t)
	hosts := []string{"here", "there"}
	s := newTestStores(t, t.TempDir(), &hosts)
	copies := func(from, to string, replace bool) error {
		_, err := s.CopySessions(t.Context(), "p", api.SessionCopyRequest{From: from, To: to, Replace: replace})
		return err
	}
	for want, ends := range map[string][2]string{
		"cannot be copied": {"embedded", "memory"},
		`a store is "embedded" or the URL of a Redis server`: {"embedded", "http://there"},
		"not in redis://a:(hidden)@there":                    {"redis://a:secret@there", "embedded"},
		"not in redis://(hidden)@there":                      {"redis://secret@there", "embedded"},
		"not in redis://:(hidden)@there?addr=there:1":        {"redis://:secret@there?addr=there:1", "embedded"},
		"source and target are the same store":               {"embedded", "embedded"},
		"scale the pool down to this host":                   {"embedded", server.URL()},
	} {
		err := copies(ends[0], ends[1], false)
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := s.StepSessionCopy(t.Context(), api.SessionCopyStep{Step: api.CopyStepCutOver})
	require.ErrorIs(t, err, api.ErrInvalid)
	require.Equal(t, api.SessionCopy{Phase: api.CopyNone, Host: "here"}, s.SessionCopy())

	hosts = []string{"here"}
	require.NoError(t, copies("embedded", server.URL(), false))
	require.NoError(t, copies("embedded", server.URL(), false), "the same copy is in progress")
	require.ErrorContains(t, copies("embedded", server.URL()+"/1", false), "already in progress")
	awaitInStep(t, s)
	require.NoError(t, errorOf(sessions.Create(t.Context(), storeOf(t, s, "p"), &sessions.Session{ID: "a"})))
	for _, step := range []api.CopyStep{api.CopyStepBack, api.CopyStepFinish, "sideways"} {
		require.ErrorIs(t, errorOf(s.StepSessionCopy(t.Context(), api.SessionCopyStep{Step: step})), api.ErrInvalid, step)
	}
	hosts = []string{"here", "there"}
	_, err = s.StepSessionCopy(t.Context(), api.SessionCopyStep{Step: api.CopyStepCutOver})
	require.ErrorContains(t, err, "scale the pool down")
	hosts = []string{"here"}
	require.Equal(t, api.CopyNone, runStep(t, s, api.CopyStepCancel).Phase)
	require.ErrorContains(t, copies("embedded", server.URL(), false), "the target store has 1 sessions")
	require.NoError(t, copies("embedded", server.URL(), true))
	runStep(t, s, api.CopyStepCancel)
}

// A pool between two processes, or only on other hosts, is known to Temporal alone.
func TestACopyIsRefusedForPoolsWithoutAProcessHere(t *testing.T) {
	server, hosts := redistest.Start(t), []string{}
	s := newTestStores(t, t.TempDir(), &hosts)
	pools := make(map[string]api.PoolStatus)
	s.ask.List = func(context.Context) ([]string, error) { return append(slices.Sorted(maps.Keys(pools)), "ended"), nil }
	s.ask.Status = func(_ context.Context, pool string) (api.PoolStatus, error) {
		if status, found := pools[pool]; found {
			return status, nil
		}
		return api.PoolStatus{}, api.ErrPoolNotFound
	}
	set := func(pool, store, url, host string) {
		status := api.PoolStatus{SessionsHost: "here", Spec: spec.Default(), Workers: []api.RosterEntry{{Host: host}}}
		status.Spec.Sessions.Store, status.Spec.Sessions.URL = store, url
		pools[pool] = status
	}
	set("p", spec.StoreEmbedded, "", "there")
	s.pools["p"].processes = 0
	request := api.SessionCopyRequest{From: "embedded", To: server.URL()}
	require.ErrorContains(t, errorOf(s.CopySessions(t.Context(), "p", request)), "pool p also has workers on there")
	set("p", spec.StoreEmbedded, "", "here")
	set("other", spec.StoreRedis, server.URL(), "there")
	require.ErrorContains(t, errorOf(s.CopySessions(t.Context(), "p", request)), "pool other stores its sessions in redis")
	pools["other"] = api.PoolStatus{SessionsHost: "there", Spec: spec.Default()} // another file

	require.NoError(t, errorOf(s.CopySessions(t.Context(), "p", request)))
	awaitInStep(t, s)
	set("other", spec.StoreRedis, server.URL(), "there")
	cutOver := api.SessionCopyStep{Step: api.CopyStepCutOver}
	require.ErrorContains(t, errorOf(s.StepSessionCopy(t.Context(), cutOver)), "pool other also has workers on there")
	runStep(t, s, api.CopyStepCancel) // the way out, since the comparison deletes the sessions of the pool other
	delete(pools, "other")
	request.Replace = true
	require.NoError(t, errorOf(s.CopySessions(t.Context(), "p", request)))
	list := s.ask.List
	s.ask.List = func(context.Context) ([]string, error) { return nil, errors.New("no answer") }
	runStep(t, s, api.CopyStepCancel)
	s.ask.List = list
	require.NoError(t, errorOf(s.CopySessions(t.Context(), "p", request)))
	awaitInStep(t, s)
	runStep(t, s, api.CopyStepCutOver)
	set("other", spec.StoreRedis, server.URL(), "there")
	back := api.SessionCopyStep{Step: api.CopyStepBack}
	require.ErrorContains(t, errorOf(s.StepSessionCopy(t.Context(), back)), "pool other also has workers on there")
	delete(pools, "other")
	set("p", spec.StoreEmbedded, "", "there")
	awaitInStep(t, s)
	runStep(t, s, api.CopyStepBack) // who else writes the store that becomes the primary does not matter
	set("p", spec.StoreEmbedded, "", "here")
	awaitInStep(t, s)
	runStep(t, s, api.CopyStepCutOver)
	finish := api.SessionCopyStep{Step: api.CopyStepFinish}
	require.ErrorContains(t, errorOf(s.StepSessionCopy(t.Context(), finish)), "the spec of p still names embedded")
	set("p", spec.StoreRedis, server.URL(), "here")
	s.ask.List = func(context.Context) ([]string, error) { return nil, errors.New("no answer") }
	require.ErrorIs(t, errorOf(s.StepSessionCopy(t.Context(), back)), api.ErrStoreUnavailable)
	require.Contains(t, runStep(t, s, api.CopyStepFinish).Problem, "not all pools were checked: "+
		"store_unavailable: cannot find out which pools use the stores of the copy: no answer; no spec may still name "+
		"embedded")
}

func TestACopyWaitsForAllPoolsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New("here", t.TempDir(), slog.New(slog.DiscardHandler), Pools{
			List: func(context.Context) ([]string, error) { return slices.Repeat([]string{"p"}, 100), nil },
			Status: func(ctx context.Context, _ string) (api.PoolStatus, error) {
				sleep.For(ctx.Done(), ownerTimeout-1)
				return api.PoolStatus{}, ctx.Err()
			},
		}, testObserver())
		began := time.Now()
		require.ErrorIs(t, s.requireOnlyHost(t.Context(), storeAddress{}), api.ErrStoreUnavailable)
		require.Equal(t, ownerTimeout, time.Since(began))
	})
}

func TestTheNextAgentResumesACopy(t *testing.T) {
	server, dir, hosts := redistest.Start(t), t.TempDir(), []string{"here"}
	s := newTestStores(t, dir, &hosts)
	_, err := s.CopySessions(t.Context(), "p", api.SessionCopyRequest{From: "embedded", To: server.URL()})
	require.NoError(t, err)
	awaitInStep(t, s)
	require.Equal(t, api.CopyCutOver, runStep(t, s, api.CopyStepCutOver).Phase)
	require.NoError(t, errorOf(sessions.Create(t.Context(), storeOf(t, s, "p"), &sessions.Session{ID: "a"})))
	settings := spec.Default().Sessions
	settings.Sync = spec.SyncInterval
	require.NoError(t, errorOf(s.openFor("p", settings)))
	settings.Store, settings.URL, settings.Sync = spec.StoreRedis, server.URL(), spec.SyncAlways
	require.NoError(t, errorOf(s.openFor("p", settings)))
	require.Equal(t, spec.SyncInterval, s.open[s.copy.From].settings.Load().Sync, "the next spec cannot name it")
	require.NoError(t, s.Close())

	// The embedded store is lost. The primary is Redis, so sessions still work, and only the step back fails.
	file := filepath.Join(dir, sessionFile)
	require.NoError(t, os.Rename(file, file+".away"))
	require.NoError(t, os.WriteFile(file, []byte("no store"), 0o600))
	s = newTestStores(t, dir, &hosts)
	require.NoError(t, s.ResumeCopy())
	require.NoError(t, errorOf(storeOf(t, s, "p").Get(t.Context(), "a")))
	require.Eventually(t, func() bool { return s.SessionCopy().Problem != "" }, waitTimeout, 5*time.Millisecond)
	require.Equal(t, api.CopyCutOver, s.SessionCopy().Phase)
	_, err = s.StepSessionCopy(t.Context(), api.SessionCopyStep{Step: api.CopyStepBack})
	require.ErrorIs(t, err, api.ErrInvalid)
	require.NoError(t, s.Close())

	require.NoError(t, os.Rename(file+".away", file))
	s = newTestStores(t, dir, &hosts)
	require.NoError(t, s.ResumeCopy())
	awaitInStep(t, s)
	require.Equal(t, api.CopyInSync, runStep(t, s, api.CopyStepBack).Phase)
	runStep(t, s, api.CopyStepCancel)
	require.NoError(t, errorOf(storeOf(t, s, "p").Get(t.Context(), "a")))
	require.NoFileExists(t, filepath.Join(dir, copyRecordFile))
	info, err := os.Stat(filepath.Dir(file))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "the record may hold a password")
}

func TestAnUnreadableCopyRecordIsAnError(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sessions"), 0o700))
	for _, text := range []string{"", "{", `{"cut_over":true}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, copyRecordFile), []byte(text), 0o600))
		err := newTestStores(t, dir, &[]string{}).ResumeCopy()
		require.ErrorContains(t, err, "the only record of which store of a session copy is the primary")
	}
}
