package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

// fakeOwner answers for a pool as a test sets it.
type fakeOwner struct {
	host  string
	state lifecycle.State
	spec  spec.Spec
	err   error
}

func (k fakeOwner) pools() Pools {
	return Pools{Status: k.Status, Claim: func(context.Context, string) error { return nil },
		List: func(context.Context) ([]string, error) { return nil, nil }}
}

func (k fakeOwner) Status(context.Context, string) (api.PoolStatus, error) {
	return api.PoolStatus{Spec: k.spec, SessionsHost: k.host, Workers: []api.RosterEntry{{Host: k.host, State: k.state}}},
		k.err
}

func TestAStartIsRejectedIfTheSessionsAreInTheLocalStoreOfAnotherHost(t *testing.T) {
	for name, c := range map[string]struct {
		owner   fakeOwner
		store   string
		refused bool
	}{
		"no owner":                           {fakeOwner{}, spec.StoreEmbedded, false},
		"this host":                          {fakeOwner{host: "here", state: lifecycle.Ready}, spec.StoreEmbedded, false},
		"another host":                       {fakeOwner{host: "there", state: lifecycle.Ready}, spec.StoreEmbedded, true},
		"another host without a live worker": {fakeOwner{host: "there", state: lifecycle.Pending}, spec.StoreEmbedded, false},
		"another host, with Redis":           {fakeOwner{host: "there", state: lifecycle.Ready}, spec.StoreRedis, false},
	} {
		s := New("here", t.TempDir(), slog.New(slog.DiscardHandler), c.owner.pools(), testObserver())
		request := api.StartRequest{Process: api.Process{Worker: "p/1"}, Spec: spec.Default()}
		request.Spec.Sessions.Store = c.store
		err := s.Admit(t.Context(), request)
		if !c.refused {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, api.ErrStoreUnavailable, name)
		require.ErrorContains(t, err, `set sessions.store = "redis"`)
	}
}

func TestPoolsWithoutAProcessAreForgotten(t *testing.T) {
	s := New("here", t.TempDir(), slog.New(slog.DiscardHandler),
		fakeOwner{host: "here", spec: spec.Default()}.pools(), testObserver())
	s.pools["running"] = &poolSessions{processes: 1}
	for i := range 2 * maxPools {
		pool := fmt.Sprint("job-", i)
		s.Affinity.SetTTL(pool, time.Hour)
		require.NoError(t, errorOf(s.poolSettings(t.Context(), pool)))
		require.LessOrEqual(t, len(s.pools), maxPools)
	}
	require.Contains(t, s.pools, "running")
	require.Contains(t, s.pools, fmt.Sprint("job-", 2*maxPools-1))
	require.NotContains(t, s.pools, "job-0")
	settings, err := s.poolSettings(t.Context(), "job-0")
	require.NoError(t, err, "it is asked again")
	require.Equal(t, spec.Default().Sessions, settings)
}

// slowOwner answers when it is told to.
type slowOwner struct {
	fakeOwner
	asked  atomic.Int64
	answer chan struct{}
}

func (o *slowOwner) Status(ctx context.Context, pool string) (api.PoolStatus, error) {
	o.asked.Add(1)
	<-o.answer
	return o.fakeOwner.Status(ctx, pool)
}

func TestStartsOfAPoolAtTheSameTimeShareTheQuestionAfterItsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := &slowOwner{fakeOwner: fakeOwner{host: "there", state: lifecycle.Ready}, answer: make(chan struct{})}
		s := New("here", t.TempDir(), slog.New(slog.DiscardHandler), Pools{Status: owner.Status}, testObserver())
		var starts sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			starts.Go(func() {
				errs[i] = s.Admit(t.Context(),
					api.StartRequest{Process: api.Process{Worker: api.WorkerName("p", i)}, Spec: spec.Default()})
			})
		}
		synctest.Wait()
		close(owner.answer)
		starts.Wait()
		require.EqualValues(t, 1, owner.asked.Load())
		for _, err := range errs {
			require.ErrorIs(t, err, api.ErrStoreUnavailable)
		}
	})
}

func TestSessionsAreFoundWhileThePoolHasNoWorkerHere(t *testing.T) {
	specWith := func(store, url string) spec.Spec {
		s := spec.Default()
		s.Sessions.Store, s.Sessions.URL = store, url
		return s
	}
	redis := specWith(spec.StoreRedis, redistest.Start(t).URL())
	file := specWith(spec.StoreEmbedded, "")
	for name, c := range map[string]struct {
		owner fakeOwner
		want  error
	}{
		"local store of this host":     {fakeOwner{host: "here", spec: file}, nil},
		"local store of another host":  {fakeOwner{host: "there", spec: file}, api.ErrNoWorkers},
		"local store without an owner": {fakeOwner{spec: file}, api.ErrNoWorkers},
		"Redis":                        {fakeOwner{spec: redis}, nil},
		"the pool does not answer":     {fakeOwner{err: errors.New("no connection")}, api.ErrUnavailable},
		"no such pool": {fakeOwner{err: api.Errorf(api.CodePoolNotFound, "no pool p is running")},
			api.ErrPoolNotFound},
	} {
		s := New("here", t.TempDir(), slog.New(slog.DiscardHandler), c.owner.pools(), testObserver())
		of, err := s.Of(t.Context(), "p")
		require.ErrorIs(t, err, c.want, name)
		if err == nil {
			require.NoError(t, errorOf(sessions.Create(t.Context(), of.Store, &sessions.Session{ID: "a"})), name)
			s.pools["p"].settingsAt = s.pools["p"].settingsAt.Add(-2 * ownerCacheTTL)
			s.ask = fakeOwner{host: "here", err: errors.New("no connection")}.pools()
			of, err = s.Of(t.Context(), "p")
			require.NoError(t, err, name)
			_, err = of.Store.Get(t.Context(), "a")
			require.NoError(t, err, "the known settings count while the pool does not answer")
		}
		require.NoError(t, s.Close())
	}
}

// TestAHostClaimsItsStoreAgain: the worker ran elsewhere meanwhile, and no request has asked here.
func TestAHostClaimsItsStoreAgain(t *testing.T) {
	s := newTestStores(t, t.TempDir(), &[]string{"here"})
	require.NoError(t, errorOf(s.Of(t.Context(), "p")))
	before := s.ask
	s.pools["p"].processes = 0 // the pool's last worker here has ended
	s.ask = fakeOwner{host: "there", spec: spec.Default()}.pools()
	for range 2 {
		_, err := s.Of(t.Context(), "p")
		require.ErrorIs(t, err, api.ErrStoreUnavailable)
		require.ErrorContains(t, err, "the sessions of pool p are in the local store of host there")
	}
	s.ask = before
	start := func() {
		s.pools["p"].processes = 0
		require.NoError(t, s.Admit(t.Context(),
			api.StartRequest{Process: api.Process{Worker: "p/0"}, Spec: spec.Default()}))
		s.addLocked("p", spec.Default().Sessions)
	}
	start()
	s.ask = fakeOwner{err: api.ErrUnavailable}.pools()
	require.NoError(t, errorOf(s.Of(t.Context(), "p")), "the store was still its own when the worker started")
	start()
	require.ErrorIs(t, errorOf(s.Of(t.Context(), "p")), api.ErrStoreUnavailable, "the start has not learned the owner")
	s.ask = fakeOwner{host: "here"}.pools()
	start()
	s.ask = fakeOwner{host: "there", spec: spec.Default()}.pools()
	require.ErrorIs(t, errorOf(s.Of(t.Context(), "p")), api.ErrStoreUnavailable, "claimed during the start")
	start()
	require.ErrorIs(t, errorOf(s.Of(t.Context(), "p")), api.ErrStoreUnavailable)

	add := func() { s.addLocked("p", spec.Default().Sessions) }
	s.ask = Pools{Status: fakeOwner{host: "here"}.Status} // which needs no claim
	add()
	require.NoError(t, errorOf(s.Of(t.Context(), "p")))
	s.ask = fakeOwner{err: api.ErrUnavailable}.pools()
	add()
	require.NoError(t, errorOf(s.Of(t.Context(), "p")), "one more process of the pool, which does not answer")
	s.ask = fakeOwner{host: "there", spec: spec.Default()}.pools()
	add()
	require.ErrorIs(t, errorOf(s.Of(t.Context(), "p")), api.ErrStoreUnavailable,
		"the pool was started again while a process of the one before it still ran here")
}

func TestSessionsAreServedAtOnceWhileTheirPoolDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		s := New("here", t.TempDir(), slog.New(slog.DiscardHandler), Pools{Status: func(ctx context.Context, _ string) (
			api.PoolStatus, error) {
			asked.Add(1)
			<-ctx.Done()
			return api.PoolStatus{}, ctx.Err()
		}}, testObserver())
		s.pools["p"] = &poolSessions{settings: spec.Default().Sessions, processes: 1, confirmed: true}
		began := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.ensureOwner(short, "p", true), api.ErrStoreUnavailable)
		require.Equal(t, time.Second, time.Since(began), "the caller has gone")
		for range 3 {
			require.NoError(t, s.ensureOwner(t.Context(), "p", true))
			require.Equal(t, ownerTimeout, time.Since(began), "only the first one waits")
		}
		sleep.For(nil, ownerCacheTTL)
		var asking sync.WaitGroup
		var err error
		asking.Go(func() { err = s.ensureOwner(t.Context(), "p", true) })
		synctest.Wait()
		require.NoError(t, s.ensureOwner(t.Context(), "p", true))
		require.Equal(t, ownerTimeout+ownerCacheTTL, time.Since(began), "one asks again, and the others go on")
		asking.Wait()
		require.NoError(t, err)
		require.EqualValues(t, 2, asked.Load())
	})
}

// TestAListClaimsNoStore: on a pool without sessions, a backup would tie the workers to the host that answered.
func TestAListClaimsNoStore(t *testing.T) {
	hosts := []string{"here"}
	s := newTestStores(t, t.TempDir(), &hosts)
	owner := ""
	s.ask.Status = func(ctx context.Context, pool string) (api.PoolStatus, error) {
		return fakeOwner{host: owner, spec: spec.Default()}.Status(ctx, pool)
	}
	s.ask.Claim = func(context.Context, string) error { owner = "here"; return nil }
	require.NoError(t, errorOf(s.ToList(t.Context(), "p")))
	require.Empty(t, owner)
	owner = "there"
	_, err := s.ToList(t.Context(), "p")
	require.ErrorIs(t, err, api.ErrStoreUnavailable, "another host has claimed it meanwhile")
	owner = ""
	s.pools["p"].ownerErr = nil
	require.NoError(t, errorOf(s.Of(t.Context(), "p")))
	require.Equal(t, "here", owner)

	owner = "" // the pool was started again
	s.pools["p"].owned, s.pools["p"].confirmed, s.pools["p"].ownerAt = false, true, time.Now().Add(-ownerCacheTTL)
	require.NoError(t, errorOf(s.ToList(t.Context(), "p")))
	require.NoError(t, errorOf(s.Of(t.Context(), "p")))
	require.Equal(t, "here", owner, "that nobody has claimed it does not let others go on")
}

func TestWithoutAPoolNameTheStoreOfTheKnownPoolsIsUsed(t *testing.T) {
	s := New("here", t.TempDir(), slog.New(slog.DiscardHandler), fakeOwner{host: "here"}.pools(), testObserver())
	defer func() { require.NoError(t, s.Close()) }()
	require.ErrorIs(t, errorOf(s.Of(t.Context(), "")), api.ErrNoWorkers, "no pool is known yet")
	file, server := spec.Default().Sessions, spec.Default().Sessions
	server.Store, server.URL = spec.StoreRedis, redistest.Start(t).URL()
	s.pools["replaced"] = &poolSessions{settings: server}
	_, settings, err := s.poolsOf(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, server, settings, "the pool's only worker is being replaced")
	s.pools["runs"] = &poolSessions{settings: file, processes: 1}
	_, settings, err = s.poolsOf(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, file, settings)
	s.pools["replaced"].processes = 1
	_, _, err = s.poolsOf(t.Context(), "")
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "?pool=replaced")
}
