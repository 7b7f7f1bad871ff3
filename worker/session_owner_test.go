package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// keeper is a pool that knows who keeps its sessions.
type keeper struct {
	holder string
	state  lifecycle.State
	spec   spec.Spec
	silent error // it does not answer
}

func (k keeper) claim(context.Context, string) (string, error) { return k.holder, nil }

func (k keeper) status(context.Context, string) (api.PoolStatus, error) {
	return api.PoolStatus{Spec: k.spec, SessionsHost: k.holder, Workers: []api.RosterEntry{{Host: k.holder, State: k.state}}}, k.silent
}

func TestAHostStartsNoWorkerOfAPoolWhoseSessionsAreInAFileOfAnother(t *testing.T) {
	request := func(change func(*spec.Spec)) api.StartRequest {
		r := api.StartRequest{Process: api.Process{Worker: "p/1"}, Spec: spec.Default()}
		if change != nil {
			change(&r.Spec)
		}
		return r
	}
	for name, c := range map[string]struct {
		keeper  keeper
		change  func(*spec.Spec)
		refused bool
	}{
		"nobody keeps any":          {keeper{}, nil, false},
		"it keeps them itself":      {keeper{holder: "here", state: lifecycle.Ready}, nil, false},
		"another one does":          {keeper{holder: "there", state: lifecycle.Ready}, nil, true},
		"another one did":           {keeper{holder: "there", state: lifecycle.Pending}, nil, false},
		"all reach the same server": {keeper{holder: "there", state: lifecycle.Ready}, func(s *spec.Spec) { s.Sessions.Store = spec.StoreRedis }, false},
	} {
		s := newStores("here", t.TempDir(), slog.New(slog.DiscardHandler), nil, c.keeper)
		err := s.admit(t.Context(), request(c.change))
		if !c.refused {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, api.ErrStoreUnavailable, name)
		require.ErrorContains(t, err, `set sessions.store = "redis"`)
	}
}

func TestSessionsAreFoundWhileTheirPoolHasNoWorkerHere(t *testing.T) {
	kept := func(store, url string) (s spec.Spec) {
		s.Sessions.Store, s.Sessions.URL = store, url
		return s
	}
	redis := kept(spec.StoreRedis, redistest.Start(t).URL())
	file := kept(spec.StoreEmbedded, "")
	for name, c := range map[string]struct {
		keeper keeper
		want   error
	}{
		"in the file of this host":      {keeper{holder: "here", spec: file}, nil},
		"in that of another one":        {keeper{holder: "there", spec: file}, api.ErrNoWorkers},
		"in nobody's yet":               {keeper{spec: file}, api.ErrNoWorkers},
		"on a server":                   {keeper{spec: redis}, nil},
		"the pool does not answer":      {keeper{silent: errors.New("no connection")}, api.ErrUnavailable},
		"there is no pool of that name": {keeper{silent: api.Errorf(api.CodePoolNotFound, "no pool p is running")}, api.ErrPoolNotFound},
	} {
		s := newStores("here", t.TempDir(), slog.New(slog.DiscardHandler), nil, c.keeper)
		of, err := s.Of(t.Context(), "p")
		require.ErrorIs(t, err, c.want, name)
		if err == nil {
			_, err = of.Store.Create(t.Context(), &sessions.Session{ID: "a"})
			require.NoError(t, err, name)
			s.pools["p"].settingsAt = s.pools["p"].settingsAt.Add(-2 * ownerCacheTTL)
			s.owner = keeper{holder: "here", silent: errors.New("no connection")}
			of, err = s.Of(t.Context(), "p")
			require.NoError(t, err, name)
			_, err = of.Store.Get(t.Context(), "a")
			require.NoError(t, err, "what is known stands while the pool does not answer")
		}
		require.NoError(t, s.close())
	}
}

func TestAHostLetsGoOfSessionsThatAnotherOneHasTaken(t *testing.T) {
	hosts := []string{"here"}
	s := keeping(t, t.TempDir(), &hosts)
	_, err := s.Of(t.Context(), "p")
	require.NoError(t, err)
	s.pools["p"].processes = 0 // its last worker has ended
	s.owner = keeper{holder: "there", spec: spec.Default()}
	for range 2 {
		_, err = s.Of(t.Context(), "p")
		require.ErrorIs(t, err, api.ErrStoreUnavailable)
		require.ErrorContains(t, err, "host there keeps the sessions of pool p")
	}
}

func TestWithoutAPoolsNameTheStoreIsThatOfThePoolsThatAreKnown(t *testing.T) {
	s := newStores("here", t.TempDir(), slog.New(slog.DiscardHandler), nil, keeper{holder: "here"})
	defer func() { require.NoError(t, s.close()) }()
	_, err := s.Of(t.Context(), "")
	require.ErrorIs(t, err, api.ErrNoWorkers, "nothing is known yet, and a session on a server is not to look gone")
	file, server := spec.Default().Sessions, spec.Default().Sessions
	server.Store, server.URL = spec.StoreRedis, redistest.Start(t).URL()
	s.pools["replaced"] = &poolSessions{settings: server}
	settings, err := s.settings(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, server, settings, "its single worker is being replaced")
	s.pools["runs"] = &poolSessions{settings: file, processes: 1}
	settings, err = s.settings(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, file, settings)
	s.pools["replaced"].processes = 1
	_, err = s.settings(t.Context(), "")
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "?pool=replaced")
}
