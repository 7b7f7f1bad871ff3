package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/affinity"
	"github.com/tempool/tempool/sessions/dualwrite"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/sessions/memory"
	"github.com/tempool/tempool/sessions/redis"
	"github.com/tempool/tempool/spec"
)

// sessionFile is the embedded store within the state folder.
const sessionFile = "sessions/sessions.db"

// stores are this host's session stores, opened when they are first used: pools that say the same share one.
type stores struct {
	hostID, dir string
	view        func(ctx context.Context, pool string) (api.PoolWorkers, error)
	claims      claims
	affinity    *affinity.Table
	log         *slog.Logger
	work        sync.WaitGroup

	// copying is held by whoever begins a copy or takes it a step on.
	copying sync.Mutex

	mu    sync.Mutex
	pools map[string]*poolSessions
	open  map[string]*openStore // by canonical key
	// copy is the copy that goes on between two stores, which then are one of open; nil for none.
	copy   *copyRecord
	closed bool
}

// poolSessions is what is known of a pool that has or had a process here, or whose sessions were asked for here. stores.mu guards it.
type poolSessions struct {
	settings  spec.Sessions
	processes int
	// learnedAt is when the pool was last asked for its settings, having no process here that says them.
	learnedAt time.Time
	// alone means that this host keeps the pool's sessions by itself; askedAt is when that was last looked at.
	alone    bool
	askedAt  time.Time
	elsewise error // why not
}

// openStore is a store and the settings it has now.
type openStore struct {
	store    *dualwrite.Store
	settings spec.Sessions
}

func newStores(hostID, dir string, log *slog.Logger, view func(context.Context, string) (api.PoolWorkers, error), c claims) *stores {
	return &stores{
		hostID: hostID, dir: dir, view: view, claims: c, affinity: affinity.New(nil), log: log,
		pools: make(map[string]*poolSessions), open: make(map[string]*openStore),
	}
}

func poolOf(worker string) string {
	pool, _, _ := strings.Cut(worker, "/")
	return pool
}

// join notes a process of a pool until it ends, and forgets then which sessions preferred it.
func (s *stores) join(p *process.Process) {
	worker, settings := p.Worker(), p.Spec().Sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.know(poolOf(worker), settings).processes++
	s.affinity.SetTTL(poolOf(worker), settings.AffinityTTL.D())
	s.work.Add(1)
	p.AfterEnd(func() {
		defer s.work.Done()
		s.affinity.UnbindWorker(worker)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pools[poolOf(worker)].processes--
	})
}

// know notes a pool's settings. s.mu is held.
func (s *stores) know(pool string, settings spec.Sessions) *poolSessions {
	p := s.pools[pool]
	if p == nil {
		p = &poolSessions{}
		s.pools[pool] = p
	}
	if storeKey(p.settings) != storeKey(settings) {
		p.alone, p.askedAt = false, time.Time{}
	}
	p.settings = settings
	return p
}

// storeKey tells stores apart.
func storeKey(settings spec.Sessions) string { return settings.Store + " " + settings.URL }

// Of is gateway.Sessions.
func (s *stores) Of(ctx context.Context, pool string) (sessions.HostCalls, error) {
	settings, err := s.settings(ctx, pool)
	if err != nil {
		return sessions.HostCalls{}, err
	}
	for _, name := range s.sharing(pool) {
		if err := s.mayKeep(ctx, name); err != nil {
			return sessions.HostCalls{}, err
		}
	}
	return s.find(settings)
}

// kept is nil if the pool's store has the session, whose life it extends.
func (s *stores) kept(ctx context.Context, pool, session string) error {
	calls, err := s.Of(ctx, pool)
	if err != nil {
		return err
	}
	_, err = calls.Store.Get(ctx, session)
	return err
}

// settings of a pool, or of all pools here if they agree on a store.
func (s *stores) settings(ctx context.Context, pool string) (spec.Sessions, error) {
	if pool != "" {
		return s.settingsOf(ctx, pool)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.present()
	if len(names) == 0 {
		return spec.Sessions{}, api.Errorf(api.CodeNoWorkers, "no pool has a worker on this host yet, so which session store is meant is not known: name the pool, as in ?pool=NAME").After(time.Second)
	}
	settings := s.pools[names[0]].settings
	for _, name := range names[1:] {
		if s.canonical(s.pools[name].settings) != s.canonical(settings) {
			return spec.Sessions{}, api.Errorf(api.CodeInvalid, "pools %s and %s of this host keep sessions in different stores: name the pool that is meant, as in ?pool=%s", names[0], name, names[0])
		}
	}
	return settings, nil
}

// sharing are the pools whose sessions an operation is about.
func (s *stores) sharing(pool string) []string {
	if pool != "" {
		return []string{pool}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present()
}

// present are the pools that have a process here, or if none has, as while a single worker is replaced, those that are known; in order. s.mu
// is held.
func (s *stores) present() (names []string) {
	for name, p := range s.pools {
		if p.processes > 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(s.pools))
	}
	slices.Sort(names)
	return names
}

const (
	// askAgain is how long a refusal of mayKeep stands, and what a pool without a process here says of its settings.
	askAgain = 5 * time.Second
	// askFor is how long the pool may take to say where its workers are.
	askFor = 5 * time.Second
)

// mayKeep fails if another host keeps the pool's sessions in a store that this one cannot reach. Who was the first to use its store stays in
// possession for as long as it has workers.
func (s *stores) mayKeep(ctx context.Context, pool string) error {
	s.mu.Lock()
	p := s.pools[pool]
	known := p == nil || p.alone || p.settings.Store == spec.StoreRedis
	var refused error
	if !known && time.Since(p.askedAt) < askAgain {
		refused = p.elsewise
	}
	s.mu.Unlock()
	if known || refused != nil {
		return refused
	}
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	holder, err := s.claims.claim(asking, pool)
	switch {
	case errors.Is(err, api.ErrPoolNotFound): // it has ended, and nobody else has it
		err = nil
	case err != nil:
		err = api.Errorf(api.CodeStoreUnavailable, "whether another host keeps the sessions of pool %s is not known: %w", pool, err).After(time.Second)
	case holder != s.hostID:
		err = s.keptElsewhere(api.CodeStoreUnavailable, pool, holder)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.alone, p.elsewise, p.askedAt = err == nil, err, time.Now()
	return err
}

// hostsBeside asks where a pool has workers but here. It fails with CodeStoreUnavailable if the pool does not say.
func (s *stores) hostsBeside(ctx context.Context, pool string) ([]string, error) {
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	view, err := s.view(asking, pool)
	switch {
	case errors.Is(err, api.ErrPoolNotFound): // it has ended, and nobody else has it
		return nil, nil
	case err != nil:
		return nil, api.Errorf(api.CodeStoreUnavailable, "whether other hosts have workers of pool %s, too, is not known: %w", pool, err).After(time.Second)
	}
	return s.otherHosts(view), nil
}

func (s *stores) otherHosts(view api.PoolWorkers) (others []string) {
	for _, w := range view.Workers {
		if w.Host != "" && w.Host != s.hostID && !slices.Contains(others, w.Host) {
			others = append(others, w.Host)
		}
	}
	slices.Sort(others)
	return others
}

// find returns the store with these settings, opened if it is not, and bounded as they say.
func (s *stores) find(settings spec.Sessions) (sessions.HostCalls, error) {
	calls := sessions.HostCalls{TTL: settings.TTL.D(), AnonymousTTL: settings.AnonymousTTL.D()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return calls, sessions.Unavailable("find the session store", sessions.ErrClosed)
	}
	known, err := s.opened(settings)
	if err != nil {
		return calls, err
	}
	if known.settings != settings {
		known.store.SetBounds(settings.Max, sessions.OnFull(settings.OnFull))
		known.store.Each(func(store sessions.Mirror) {
			if file, is := store.(*embedded.Store); is && settings.Store == spec.StoreEmbedded {
				file.SetSync(embedded.Sync(settings.Sync))
			}
		})
		known.settings = settings
	}
	calls.Store = known.store
	return calls, nil
}

// opened returns the store with these settings, opened with them if it is not. s.mu is held.
func (s *stores) opened(settings spec.Sessions) (*openStore, error) {
	key := s.canonical(settings)
	if known := s.open[key]; known != nil {
		return known, nil
	}
	var store *dualwrite.Store
	if s.copy != nil && key == s.copy.From.key() {
		pair, err := s.openPair(settings)
		if err != nil {
			return nil, err
		}
		store = pair
	} else {
		one, err := s.openStore(settings)
		if err != nil {
			return nil, err
		}
		store = dualwrite.Of(one)
	}
	known := &openStore{store: store, settings: settings}
	s.open[key] = known
	return known, nil
}

// canonical is the key of the store with these settings; the two stores of a copy have the first one's. s.mu is held.
func (s *stores) canonical(settings spec.Sessions) string {
	key := storeKey(settings)
	if s.copy != nil && key == s.copy.To.key() {
		return s.copy.From.key()
	}
	return key
}

func (s *stores) openStore(settings spec.Sessions) (sessions.Mirror, error) {
	config := sessions.Config{TTL: settings.TTL.D(), Max: settings.Max, OnFull: sessions.OnFull(settings.OnFull)}
	switch settings.Store {
	case spec.StoreMemory:
		return memory.Open(config), nil
	case spec.StoreEmbedded:
		return embedded.Open(embedded.Options{Config: config, Path: filepath.Join(s.dir, sessionFile), Sync: embedded.Sync(settings.Sync)})
	case spec.StoreRedis:
		return redis.Open(redis.Options{Config: config, URL: settings.URL})
	}
	return nil, api.Errorf(api.CodeInvalid, "there is no session store %q", settings.Store)
}

// sweep removes what has expired, again and again until ctx ends.
func (s *stores) sweep(ctx context.Context) {
	ticker := time.NewTicker(sessions.SweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.sweepNow(ctx)
	}
}

// sweepNow frees what is left of expired sessions, and says of how many.
func (s *stores) sweepNow(ctx context.Context) (found int) {
	for _, store := range s.all() {
		n, err := store.DeleteExpired(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("expired sessions were not swept; they are gone all the same", "error", err)
		}
		found += n
	}
	return found
}

// drop gives back what this agent keeps of sessions and can do without: the remains of expired ones, and bindings that have run
// out. What a worker's program keeps of sessions is its own, and it is told of the shortage, too.
func (s *stores) drop(ctx context.Context) {
	found, before := s.sweepNow(ctx), memoryOfHeap()
	bindings := s.affinity.Len() // it sweeps first
	debug.FreeOSMemory()
	s.log.Info("session caches were dropped", "expired_sessions", found, "bindings_kept", bindings, "heap_before", before, "heap_after", memoryOfHeap())
}

// memoryOfHeap is what the agent's own heap has from the system, in bytes.
func memoryOfHeap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys - m.HeapReleased
}

func (s *stores) all() (all []sessions.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.open {
		all = append(all, known.store)
	}
	return all
}

// close closes the stores. All processes must have ended.
func (s *stores) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.work.Wait()
	var failures []error
	for _, store := range s.all() {
		failures = append(failures, store.Close())
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("close the session stores: %w", err)
	}
	return nil
}
