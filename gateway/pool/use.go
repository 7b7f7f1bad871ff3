package pool

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// use is the one use of an isolated worker's process (isolation.by = "use"): one call of the pool, or the calls under
// one lease. It begins before the first byte is sent to the process, and ends with the process, in whose place comes a
// clean one.
type use struct {
	begun  bool
	lease  api.LeaseRef // whose it is; zero for a call of the pool
	calls  int          // in flight
	ending bool         // the clean process is being made
}

func (u *upstream) isolated() bool { return u.spec != nil && u.spec.Isolation.By == spec.IsolateUse }

// beginUseLocked gives the call, which is in flight, the connection to the process. For an isolated worker it makes the
// call a part of the process's use: of a new one, or of its lease's. It reports false if the process is another's.
func (u *upstream) beginUseLocked(c *Call) bool {
	var ref api.LeaseRef
	if c.lease != nil {
		ref = c.lease.ref
	}
	switch {
	case !u.isolated():
		c.conn = u.conn
		return true
	case u.is(gone), u.use.ending, u.use.begun && (c.lease == nil || u.use.lease != ref):
		return false
	case !u.use.begun:
		if !u.process.Use() {
			return false
		}
		u.use, u.closed[used] = use{begun: true, lease: ref}, "its process has begun its only use"
	}
	u.use.calls++
	c.conn, c.inUse = u.conn, true
	return true
}

// completeUseLocked ends the use with its only call; that of a lease lasts as long as the lease.
func (u *upstream) completeUseLocked(c *Call) {
	if c.inUse {
		c.inUse = false
		u.use.calls--
		u.endUseLocked()
	}
}

// endUseLocked has a clean process made once the use is over: no call of it is in flight, and its lease does not count
// any more. A suspended worker gets its clean process when it resumes.
func (u *upstream) endUseLocked() {
	if !u.use.begun || u.use.ending || u.use.calls > 0 || u.is(gone) || u.suspension != nil ||
		u.lease != nil && u.lease.ref == u.use.lease {
		return
	}
	u.use.ending = true
	u.process.Recycle(func() { u.pool.reopen(u) })
}

// reopen lets calls run on the clean process of an isolated worker.
func (p *poolState) reopen(u *upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.is(gone) {
		return
	}
	u.conn, u.use, u.closed[used] = u.process.Conn(), use{}, ""
	p.watchConn(u)
	u.openedLocked()
}

// resumeUseLocked continues the use of a process that was taken over from an earlier agent.
func (u *upstream) resumeUseLocked() {
	if !u.isolated() || !u.process.Used() {
		return
	}
	u.use, u.closed[used] = use{begun: true}, "its process has begun its only use"
	if u.lease != nil {
		u.use.lease = u.lease.ref
	}
	u.endUseLocked()
}
