package pool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// use is what an isolated worker's process serves. With isolation.by = "use" that is one call of the pool, or the calls
// under one lease; with "key" all calls of one key, until its use is over. It begins before the first byte is sent to
// the process, and ends with the process, in whose place comes a clean one.
type use struct {
	begun       bool
	owner       owner
	calls       int       // in flight
	since, last time.Time // by key: when it began, and when its last call did, or ended
	over        bool      // it takes no further call
	ending      bool      // the clean process is being made
	starting    bool      // the key's process is, which was started for it
}

// owner is whose use it is: nobody else's calls join. That of a pool call by use is the zero owner, which none joins.
type owner struct {
	lease api.LeaseRef
	key   string // its hash
}

// hashKey is what the gateway keeps of a key: its hash, "" for no key.
func hashKey(key string) string {
	if key == "" {
		return ""
	}
	hash := sha256.Sum256([]byte(key))
	return hex.EncodeToString(hash[:])
}

func (u *upstream) byKey() bool { return u.spec.IsolatedBy() == spec.IsolateKey }
func (u *upstream) byUse() bool { return u.spec.IsolatedBy() == spec.IsolateUse }

// checkKey refuses a call or a client without the key that a pool with this isolation.by needs, or with a key that it
// does not need. by is "" while the spec is not known.
func checkKey(pool, by, key string) error {
	switch byKey := by == spec.IsolateKey; {
	case by == "", byKey == (key != ""):
		return nil
	case byKey:
		return api.Errorf(api.CodeKeyRequired,
			"pool %s has isolation.by = \"key\": name whose call it is with the header %s, also under a lease", pool,
			api.HeaderKey)
	}
	return api.Errorf(api.CodeInvalid,
		"pool %s takes no key: its processes serve everybody unless isolation.by = \"key\"", pool)
}

// identifyLocked is hashKey for a call of the pool. The headers that isolation.env takes values from are a part of
// whose call it is: who knows the key of another one, and not its secret, gets a process of its own.
func (p *poolState) identifyLocked(key string, headers map[string]string) (string, error) {
	if !p.spec.StartsForKey() {
		return hashKey(key), nil
	}
	if problem := p.spec.CheckPathKey(key); problem != "" {
		return "", api.Errorf(api.CodeInvalid, "pool %s cannot use this key: %s", p.pool, problem)
	}
	for _, name := range p.spec.EnvHeaders() {
		value := headers[name]
		if value == "" {
			return "", api.Errorf(api.CodeInvalid,
				"pool %s starts the process of a key with the header %s (isolation.env): send it with each call", p.pool,
				http.CanonicalHeaderKey(name))
		}
		key += "\x00" + value
	}
	return hashKey(key), nil
}

// admitsLocked reports whether the process may serve a call of the pool with the key, "" for none.
func (u *upstream) admitsLocked(key string) bool {
	if !u.byKey() {
		return key == "" && !u.use.begun
	}
	return key != "" && (!u.use.begun || !u.use.over && key == u.use.owner.key)
}

// inServiceLocked reports whether calls of the pool may go to the worker, if not to the process that it has now.
func (u *upstream) inServiceLocked() bool {
	return u.closed == [closings]string{} && u.leases.Open()
}

// boundLocked counts the processes that calls of the key may wait for, and those that a client with the key has leased
// or is about to.
func (p *poolState) boundLocked(key string) (n int) {
	for _, u := range p.order {
		whose := u.intended
		if u.use.begun {
			whose = u.use.owner.key
		}
		if whose == key && (u.inServiceLocked() || u.leases.Reserved || u.lease != nil) {
			n++
		}
	}
	return n
}

// mayBindLocked reports whether the key may have one more process on this host.
func (p *poolState) mayBindLocked(key string) bool {
	return p.boundLocked(key) < p.spec.MaxPerKey()
}

// beginUseLocked gives the call, which is in flight, the connection to the process. For an isolated worker it makes the
// call a part of the process's use, or begins one. It reports false if the process is another's.
func (u *upstream) beginUseLocked(c *Call) bool {
	if !u.byUse() && !u.byKey() {
		c.conn = u.conn
		return true
	}
	whose := owner{key: c.key}
	if c.lease != nil && u.byUse() {
		whose.lease = c.lease.ref
	}
	switch {
	case u.is(gone), u.use.over:
		return false
	case !u.use.begun && u.process.Vacant():
		u.use = use{begun: true, owner: whose, since: time.Now(), last: time.Now(), starting: true}
		headers := map[string]string{}
		for _, name := range u.spec.EnvHeaders() {
			headers[name] = c.binding.Headers[name]
		}
		u.process.Bind(process.Binding{Owner: whose.key, Key: c.binding.Key, Headers: headers},
			func(err error) { u.pool.bound(u, err) })
		return false
	case u.use.starting:
		return false
	case !u.use.begun:
		if !u.process.Use(whose.key) {
			return false
		}
		u.use = use{begun: true, owner: whose, since: time.Now()}
		if u.byKey() {
			u.pool.notify() // it may be idle for too long
		}
	case whose != u.use.owner, whose == owner{}:
		return false
	}
	u.use.calls++
	u.touchLocked()
	c.conn, c.inUse = u.conn, true
	return true
}

func (u *upstream) touchLocked() {
	if u.byKey() {
		u.use.last = time.Now()
	}
}

// completeUseLocked ends a call of the use, and the use if it is over with it.
func (u *upstream) completeUseLocked(c *Call) {
	if c.inUse {
		c.inUse = false
		u.use.calls--
		u.touchLocked()
		u.endUseLocked()
	}
}

// yieldLocked ends the use of another key than that of a call under the lease that the worker has.
func (u *upstream) yieldLocked(c *Call) {
	if u.byKey() && u.use.begun && !u.use.starting && u.use.owner.key != c.key {
		u.endKeyLocked()
	}
}

// ReleaseKey has a worker of this host end the process of the key that it serves, if there is one, after its calls in
// flight; a clean one follows. Errors are worker_not_found, pool_not_found, invalid for a pool without keys, and
// api.OtherHostError.
func (d *Dispatcher) ReleaseKey(ctx context.Context, pool string, slot int) (api.ReleaseResult, error) {
	result := api.ReleaseResult{Worker: api.WorkerName(pool, slot)}
	p, err := d.find(ctx, pool, result.Worker)
	if err != nil {
		return result, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.order {
		switch {
		case u.worker != result.Worker || u.is(gone):
			continue
		case !u.byKey():
			return result, api.Errorf(api.CodeInvalid, "pool %s has no keys to release: isolation.by is %q", pool,
				u.spec.IsolatedBy())
		case result.Incarnation > 0 && !u.use.begun:
			continue
		}
		result.Incarnation, result.Process, result.InFlight = u.incarnation, u.process.Info().Number, u.use.calls
		if u.use.begun {
			result.Key = &api.KeyUse{Key: api.ShownKey(u.use.owner.key), Since: u.use.since.UTC()}
			u.endKeyLocked()
		}
	}
	if result.Incarnation == 0 {
		return result, errNoProcess(result.Worker, d.config.HostID)
	}
	return result, nil
}

// endKeyLocked ends the use of a key as soon as none of its calls is in flight.
func (u *upstream) endKeyLocked() {
	u.use.over = true
	u.endUseLocked()
}

// endUseLocked has a clean process made once the use is over: no call of it is in flight, and its lease does not count
// any more. A suspended worker gets its clean process when it resumes.
func (u *upstream) endUseLocked() {
	if !u.use.begun || u.use.ending || u.use.starting || u.use.calls > 0 || u.is(gone) || u.suspension != nil {
		return
	}
	if u.byUse() {
		u.use.over = u.lease == nil || u.lease.ref != u.use.owner.lease
	}
	if u.use.over {
		u.use.ending = true
		u.process.Recycle(func() { u.pool.reopen(u) })
	}
}

// reopen lets calls run on the clean process of an isolated worker.
func (p *poolState) reopen(u *upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.is(gone) {
		return
	}
	u.conn, u.use = u.process.Conn(), use{}
	p.watchConn(u)
	u.openedLocked()
}

// bound lets calls run on the process that was started for their key, or ends them with the reason why it was not.
func (p *poolState) bound(u *upstream, failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.is(gone) {
		return
	}
	key, over := u.use.owner.key, u.use.over // for those that come after the calls that wait
	u.use.over = false
	if u.use.starting = false; failure == nil {
		u.conn = u.process.Conn()
		u.touchLocked()
		p.watchConn(u)
		p.notify() // it may be idle for too long
	} else {
		u.use, failure = use{}, api.Errorf(api.CodeStartFailed, "%w", failure)
	}
	for c := range u.calls {
		switch {
		case c.key != key || c.lease != nil && c.lease != u.lease:
		case failure != nil:
			c.cancel(failure)
		case c.lease == nil || u.aloneLocked(c.lease):
			u.beginUseLocked(c)
		}
	}
	u.use.over = over && failure == nil
	u.endUseLocked()
	u.openedLocked()
}

// resumeUseLocked continues the use of a process that was taken over from an earlier agent.
func (u *upstream) resumeUseLocked() {
	earlier := u.process.Used()
	if earlier == nil {
		return
	}
	u.use = use{begun: true, owner: owner{key: earlier.Key}, since: earlier.Since, last: time.Now()}
	if u.byUse() {
		if u.lease != nil {
			u.use.owner.lease = u.lease.ref
		}
		u.endUseLocked()
	}
}

// idleKeyLocked reports whether the process is bound to a key that does not use it now.
func (u *upstream) idleKeyLocked() bool {
	return u.byKey() && u.use.begun && !u.use.over && u.use.calls == 0 && u.inServiceLocked()
}

// expireKeyLocked ends the use of a key after isolation.idle and isolation.max_lifetime, and returns the time until it
// may be due.
func (u *upstream) expireKeyLocked(now time.Time) time.Duration {
	if !u.byKey() || !u.use.begun || u.use.over || u.use.starting {
		return idleTick
	}
	idle, lifetime := u.spec.Isolation.Idle.D(), u.spec.Isolation.MaxLifetime.D()
	in := idle / spareShare
	if u.idleKeyLocked() {
		if in = u.use.last.Add(in).Sub(now); in <= 0 {
			in = u.use.last.Add(idle).Sub(now)
		}
	}
	if lifetime > 0 {
		in = min(in, u.use.since.Add(lifetime).Sub(now))
		if !u.inServiceLocked() { // a lease, or an order, ends first
			in = max(in, time.Second)
		}
	}
	if in > 0 {
		return in
	}
	u.endKeyLocked()
	return idleTick
}

// spareShare is the part of isolation.idle after which an idle key gives way to a spare.
const spareShare = 10

// makeRoomLocked has the least recently used idle keys give way to keys that wait and may have another process. If none
// is idle and one has waited for longer than patience, the key gives way that has had its process longest, after its
// calls: no key keeps another waiting until it fails. Without patience only idle keys give way. So they do to
// isolation.spares that are missing, after a part of isolation.idle.
func (p *poolState) makeRoomLocked(now time.Time, patience time.Duration) {
	if p.spec.IsolatedBy() != spec.IsolateKey {
		return
	}
	clean := 0 // processes, now or soon
	var idle, busy []*upstream
	for _, u := range p.order {
		switch {
		case !u.byKey() || !u.inServiceLocked() || u.use.starting:
		case !u.use.begun, u.use.over:
			clean++
		case u.idleKeyLocked():
			idle = append(idle, u)
		default:
			busy = append(busy, u)
		}
	}
	if len(idle) == 0 && (patience == 0 || clean > 0) {
		return
	}
	workers := clean + len(idle) + len(busy)
	slices.SortFunc(idle, func(a, b *upstream) int { return a.use.last.Compare(b.use.last) })
	slices.SortFunc(busy, func(a, b *upstream) int { return a.use.since.Compare(b.use.since) })
	lost, seen := p.dispatcher.monitor.lost.Load(), map[string]bool{}
	for l, waiting := range p.queue.lines {
		w := waiting.First()
		if l.key == "" || w == nil || l.clients && lost || seen[l.key] || !p.mayBindLocked(l.key) {
			continue
		}
		serves := func(u *upstream) bool { return !u.use.over && (l.worker == "" || l.worker == u.worker) }
		seen[l.key] = true
		if l.worker == "" && clean > 0 {
			clean--
		} else if i := slices.IndexFunc(idle, serves); i >= 0 {
			idle[i].endKeyLocked()
		} else if i := slices.IndexFunc(busy, serves); i >= 0 && patience > 0 && now.Sub(w.at) > patience {
			busy[i].endKeyLocked()
			patience = 0 // one at a time
		}
	}
	spares := min(p.spec.Isolation.Spares, workers-1)
	for _, u := range idle {
		due := now.Sub(u.use.last) >= u.spec.Isolation.Idle.D()/spareShare
		if due && clean < spares && !u.use.over && !u.spec.StartsForKey() {
			u.endKeyLocked()
			clean++
		}
	}
}

// keysLocked are the keys whose processes take a call now, and whether a clean process does.
func (p *poolState) keysLocked(now time.Time) (keys []string, clean bool) {
	for _, u := range p.order {
		if !u.byKey() {
			continue
		}
		if _, open := u.loadLocked(cmp.Or(u.use.owner.key, "any"), now); open && u.use.begun {
			keys = append(keys, u.use.owner.key)
		} else if open {
			clean = true
		}
	}
	return keys, clean
}
