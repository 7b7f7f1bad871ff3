// Package host is what an agent does for sessions: it opens the stores of its pools, copies one to another, answers the
// session calls of programs, and counts and emits what happens.
package host

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
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/affinity"
	"github.com/tempool/tempool/sessions/dualwrite"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/sessions/redis"
	"github.com/tempool/tempool/spec"
)

// sessionFile is the file of the embedded store in the state folder.
const sessionFile = "sessions/sessions.db"

// Stores opens this host's session stores on first use. Pools with the same settings share one store.
type Stores struct {
	hostID, dir string
	ask         Pools
	Affinity    *affinity.Table
	observer    *Observer
	log         *slog.Logger
	processes   sync.WaitGroup

	// asking are the questions to pools that starts share.
	asking singleflight.Group

	// copyMu serialises the steps of a copy.
	copyMu sync.Mutex

	mu    sync.Mutex
	pools map[string]*poolSessions
	open  map[storeAddress]*openStore // by canonical address
	// copy is the copy in progress, or nil. Its two stores are one entry of open.
	copy   *copyRecord
	closed bool
}

// poolSessions describes a pool that has or had a process here, or whose sessions were used here. Stores.mu guards it.
type poolSessions struct {
	settings  spec.Sessions
	processes int
	usedAt    time.Time // when it last had a process, or its settings were learned
	// settingsAt is when the pool, having no process here, was last asked for its settings.
	settingsAt time.Time
	// owned means that this host owns the pool's local store; ownerErr is the reason if it does not, and ownerAt the time
	// of that answer.
	owned    bool
	ownerAt  time.Time
	ownerErr error
	// confirmed means that the pool named this host as the owner when its first process here was to start, or since.
	confirmed bool
}

// openStore is a store and its current settings: those of the pool that used it last.
type openStore struct {
	store    *dualwrite.Store
	settings atomic.Pointer[spec.Sessions]
}

func (o *openStore) current() spec.Sessions { return *o.settings.Load() }

// New makes the stores of a host.
func New(hostID, dir string, log *slog.Logger, ask Pools, observer *Observer) *Stores {
	return &Stores{
		observer: observer, hostID: hostID, dir: dir, ask: ask, Affinity: affinity.New(nil), log: log,
		pools: make(map[string]*poolSessions), open: make(map[storeAddress]*openStore),
	}
}

// Add counts a process of its pool until it ends.
func (s *Stores) Add(p *process.Process) {
	name, settings := api.PoolOf(p.Worker()), p.Spec().Sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	pool := s.addLocked(name, settings)
	s.Affinity.SetTTL(name, settings.AffinityTTL.D())
	s.processes.Add(1)
	p.AfterEnd(func() {
		defer s.processes.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		pool.processes--
		pool.confirmed = pool.confirmed && pool.processes > 0
		pool.usedAt = time.Now()
	})
}

// addLocked counts a process of a pool, which claims the local store again: another host may have done so while the
// pool had none here, or since the pool was started again under its name.
func (s *Stores) addLocked(pool string, settings spec.Sessions) *poolSessions {
	p := s.learnLocked(pool, settings)
	p.confirmed = p.confirmed || p.owned && p.processes > 0
	p.owned, p.ownerAt = false, time.Time{}
	p.processes++
	return p
}

// learnLocked records a pool's settings.
func (s *Stores) learnLocked(pool string, settings spec.Sessions) *poolSessions {
	p := s.pools[pool]
	if p == nil {
		s.forgetPoolLocked()
		p = &poolSessions{}
		s.pools[pool] = p
	}
	p.usedAt = time.Now()
	if addressOf(p.settings) != addressOf(settings) {
		p.owned, p.confirmed, p.ownerAt = false, false, time.Time{}
	}
	p.settings = settings
	return p
}

// maxPools is how many pools are known while some have no process here.
const maxPools = 1000

// forgetPoolLocked makes room for another pool: the one without a process that has rested longest is asked for its
// settings again if it is used again.
func (s *Stores) forgetPoolLocked() {
	if len(s.pools) < maxPools {
		return
	}
	oldest := ""
	for name, p := range s.pools {
		if p.processes == 0 && (oldest == "" || p.usedAt.Before(s.pools[oldest].usedAt)) {
			oldest = name
		}
	}
	delete(s.pools, oldest)
	s.Affinity.SetTTL(oldest, 0)
}

// Of implements gateway.Sessions.
func (s *Stores) Of(ctx context.Context, pool string) (sessions.HostCalls, error) {
	return s.of(ctx, pool, true)
}

// ToList implements gateway.Sessions.
func (s *Stores) ToList(ctx context.Context, pool string) (sessions.HostCalls, error) {
	return s.of(ctx, pool, false)
}

func (s *Stores) of(ctx context.Context, pool string, claim bool) (sessions.HostCalls, error) {
	pools, settings, err := s.poolsOf(ctx, pool)
	if err != nil {
		return sessions.HostCalls{}, err
	}
	for _, name := range pools {
		if err := s.ensureOwner(ctx, name, claim); err != nil {
			return sessions.HostCalls{}, err
		}
	}
	return s.openFor(pool, settings)
}

// SessionExists returns nil if the pool's store has the session, and extends the session's life.
func (s *Stores) SessionExists(ctx context.Context, pool, session string) error {
	calls, err := s.Of(ctx, pool)
	if err != nil {
		return err
	}
	_, err = calls.Store.Get(ctx, session)
	return err
}

// poolsOf returns the pools whose sessions a request is about, and their session settings: the named one, or without a
// name all active pools here if they use the same store.
func (s *Stores) poolsOf(ctx context.Context, pool string) (names []string, settings spec.Sessions, err error) {
	if pool != "" {
		settings, err = s.poolSettings(ctx, pool)
		return []string{pool}, settings, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names = s.activePoolsLocked()
	if len(names) == 0 {
		return nil, settings, api.Errorf(api.CodeNoWorkers,
			"no pool has a worker on this host, so there is no default session store; name the pool, as in ?pool=NAME").After(
			time.Second)
	}
	settings = s.pools[names[0]].settings
	for _, name := range names[1:] {
		if s.canonicalLocked(s.pools[name].settings) != s.canonicalLocked(settings) {
			return nil, settings, api.Errorf(api.CodeInvalid,
				"pools %s and %s of this host use different session stores; name the pool, as in ?pool=%s", names[0], name,
				names[0])
		}
	}
	return names, settings, nil
}

// activePoolsLocked returns the pools that have a process here, sorted. If none has, for example while a single worker
// is replaced, it returns all known pools.
func (s *Stores) activePoolsLocked() []string {
	known := slices.Sorted(maps.Keys(s.pools))
	active := slices.DeleteFunc(slices.Clone(known), func(name string) bool { return s.pools[name].processes == 0 })
	if len(active) > 0 {
		return active
	}
	return known
}

// openFor returns the store with these settings for a pool, opens it if necessary, and has it follow them.
func (s *Stores) openFor(pool string, settings spec.Sessions) (sessions.HostCalls, error) {
	calls := sessions.HostCalls{TTL: settings.TTL.D(), AnonymousTTL: settings.AnonymousTTL.D()}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, err := s.openLocked(settings)
	if err != nil {
		return calls, err
	}
	if settings.Store != spec.StoreEmbedded { // then it has no mode for the embedded store that is its copy
		settings.Sync = known.current().Sync
	}
	if known.current() != settings {
		known.settings.Store(new(settings))
	}
	calls.Store = observedStore{known.store, settings.Store, pool, s.observer}
	return calls, nil
}

// openLocked returns the store with these settings, and opens it if necessary, both stores during its copy.
func (s *Stores) openLocked(settings spec.Sessions) (*openStore, error) {
	if s.closed {
		return nil, sessions.Unavailable("open the session store", sessions.ErrClosed)
	}
	address := s.canonicalLocked(settings)
	if known := s.open[address]; known != nil {
		return known, nil
	}
	known := &openStore{}
	known.settings.Store(&settings)
	copied := s.copy != nil && address == s.copy.From
	primary, secondary := address, storeAddress{}
	if copied {
		secondary = s.copy.To
	}
	if copied && s.copy.CutOver {
		primary, secondary = secondary, primary
	}
	first, err := s.openBackend(primary, known)
	if err != nil {
		return nil, err
	}
	known.store = dualwrite.New(first)
	if copied {
		second, err := s.openBackend(secondary, known)
		if err != nil { // the primary alone serves
			second = embedded.Broken(err)
		}
		known.store.StartCopy(second, true)
	}
	s.open[address] = known
	return known, nil
}

// canonicalLocked returns the key in open of the store with these settings. Both stores of a copy have that of the
// first.
func (s *Stores) canonicalLocked(settings spec.Sessions) storeAddress {
	address := addressOf(settings)
	if s.copy != nil && address == s.copy.To {
		return s.copy.From
	}
	return address
}

// openBackend opens a store, which follows the settings of known.
func (s *Stores) openBackend(address storeAddress, known *openStore) (sessions.Store, error) {
	config := sessions.Config{Settings: known.current, Removed: s.observer.removed(address.Store)}
	s.observer.Stats.Opened(address.Store)
	switch address.Store {
	case spec.StoreMemory:
		return embedded.InMemory(config), nil
	case spec.StoreEmbedded:
		return embedded.Open(embedded.Options{Config: config, Path: filepath.Join(s.dir, sessionFile)})
	case spec.StoreRedis:
		return redis.Open(redis.Options{Config: config, URL: address.URL})
	}
	return nil, api.Errorf(api.CodeInvalid, "unknown session store %q", address.Store)
}

func (s *Stores) all() []*openStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.open))
}

// Close closes the stores. All processes must have ended.
func (s *Stores) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.processes.Wait()
	var failures []error
	for _, known := range s.all() {
		failures = append(failures, known.store.Close())
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("close the session stores: %w", err)
	}
	return nil
}

// Sweep removes expired sessions every sessions.SweepEvery until ctx ends.
func (s *Stores) Sweep(ctx context.Context) {
	for range sleep.Ticks(ctx.Done(), sessions.SweepEvery) {
		s.sweepOnce(ctx)
	}
}

// sweepOnce removes expired sessions and returns how many there were.
func (s *Stores) sweepOnce(ctx context.Context) (removed int) {
	for _, known := range s.all() {
		n, err := known.store.DeleteExpired(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("sweeping expired sessions failed; they stay inaccessible", "error", err)
		}
		removed += n
	}
	return removed
}

// FreeMemory removes what this agent holds of expired sessions and bindings, and returns free heap memory to the
// system.
func (s *Stores) FreeMemory(ctx context.Context) {
	removed, before := s.sweepOnce(ctx), heapBytes()
	bindings := 0
	for _, n := range s.Affinity.Pools() { // without the expired ones
		bindings += n
	}
	debug.FreeOSMemory()
	s.log.Info("session caches dropped", "expired_sessions", removed, "bindings", bindings, "heap_before", before,
		"heap_after", heapBytes())
}

// heapBytes returns the memory that the agent's heap holds from the system, in bytes.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys - m.HeapReleased
}
