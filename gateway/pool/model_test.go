package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/lease"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// The model tries every order of what may happen to one worker: calls of the pool and calls of two clients, leases that
// were granted with and without the gateway, checkins by both roads, messages that arrive late, twice or never, a
// crash, a surge, a drain, and an agent that takes its processes over from another. The worker's workflow is a few
// lines; all decisions of the gateway are those of the product. What must hold is the promise to the holder of a lease:
// from its first call to the end of the lease no other call runs on the process.

// maxSeq and maxIncarnation end the model.
const (
	maxSeq         = 3
	maxIncarnation = 2
)

// modelWorkflow is what the worker's workflow knows.
type modelWorkflow struct {
	incarnation int64
	seq         int64
	lease       api.LeaseRef // zero for none
	state       lifecycle.State
}

// modelCall is a call in flight.
type modelCall struct {
	call *Call
	u    *upstream
	ref  api.LeaseRef // zero for one of the pool
}

func (c modelCall) runs() bool {
	if c.call.lease == nil || c.call.lease.previous == nil {
		return true
	}
	select {
	case <-c.call.lease.previous:
		return true
	default:
		return false
	}
}

// model is one state of everything.
type model struct {
	p        *poolState
	w        modelWorkflow
	granted  []api.LeaseRef // what holders have
	calls    []modelCall
	used     map[api.LeaseRef]bool // a call has run under it
	over     map[api.LeaseRef]bool // it was returned, or has ended with its process
	checkins []api.LeaseRef        // under way to the workflow
	asked    *modelWorkflow        // the answer to the gateway's question, under way
	askedBy  *upstream
	verified *modelWorkflow // the answer to the verification of a first call, under way
	verifies api.LeaseRef
	reserved *upstream     // by a checkout under way
	answer   *api.LeaseRef // to the checkout; zero if it was refused
	restarts int
	returned map[api.LeaseRef]bool // at the gateway
	fault    string
}

func newModel() *model {
	d := &Dispatcher{monitor: &controlPlaneMonitor{}, pools: map[string]*poolState{}}
	d.life, d.end = context.WithCancel(context.Background())
	m := &model{p: newPoolState(d, "p"), used: map[api.LeaseRef]bool{}, over: map[api.LeaseRef]bool{},
		returned: map[api.LeaseRef]bool{},
		w:        modelWorkflow{incarnation: 1, state: lifecycle.Ready}}
	m.open(1)
	return m
}

// open adds the upstream of an incarnation.
func (m *model) open(incarnation int64) *upstream {
	sp := spec.Default()
	sp.Pool.MaxInflight = 2
	u := &upstream{pool: m.p, worker: "p/0", incarnation: incarnation, spec: &sp, stats: &workerStats{}}
	if newest := m.p.upstreams[u.worker]; newest != nil {
		m.p.older = append(m.p.older, newest)
	}
	m.p.upstreams[u.worker] = u
	m.p.sortLocked()
	return u
}

func (m *model) lease(ref api.LeaseRef) api.Lease {
	return api.Lease{ID: leaseID(ref), Worker: "p/0", Host: "here", Incarnation: ref.Incarnation}
}

func (m *model) workerState(w modelWorkflow) api.WorkerState {
	s := api.WorkerState{Incarnation: w.incarnation, LeaseSeq: w.seq, State: w.state}
	if w.lease != (api.LeaseRef{}) {
		lease := m.lease(w.lease)
		lease.TTLMS = time.Hour.Milliseconds()
		s.Lease, s.State = &lease, lifecycle.Busy
	}
	return s
}

// grant is what the workflow does with a checkout.
func (m *model) grant() (api.LeaseRef, bool) {
	if m.w.lease != (api.LeaseRef{}) || m.w.state != lifecycle.Ready || m.w.seq == maxSeq {
		return api.LeaseRef{}, false
	}
	m.w.seq++
	m.w.lease = api.LeaseRef{Pool: "p", Incarnation: m.w.incarnation, Seq: m.w.seq}
	m.granted = append(m.granted, m.w.lease)
	return m.w.lease, true
}

func (m *model) endLease() {
	m.over[m.w.lease] = true
	m.w.lease = api.LeaseRef{}
}

// start puts a call in flight.
func (m *model) start(u *upstream, l *activeLease) {
	c := newCall(m.p.dispatcher.life, Request{Deadline: time.Now().Add(time.Hour)})
	u.startLocked(c, l, time.Now())
	call := modelCall{call: c, u: u}
	if l != nil {
		call.ref = l.ref
		if m.returned[l.ref] {
			m.fault = fmt.Sprintf("a call starts under lease %v, which was returned", l.ref)
		}
	}
	m.calls = append(m.calls, call)
}

// settle waits for what the gateway does in the background, and drops the calls that it has cancelled.
func (m *model) settle() {
	for again := true; again; {
		again = false
		for i, c := range m.calls {
			if c.call.ctx.Err() != nil || c.u.gone { // the worker gives it up at once
				c.u.completeLocked(c.call, api.ErrCancelled, time.Now())
				m.calls = slices.Delete(m.calls, i, i+1)
				again = true
				break
			}
		}
	}
	for _, u := range m.p.order {
		if l := u.lease; l != nil && l.previous != nil && len(u.poolCalls.calls) == 0 && m.callsBefore(u, l) == 0 {
			<-l.previous
		}
	}
	for _, c := range m.calls {
		if c.ref != (api.LeaseRef{}) && c.runs() {
			m.used[c.ref] = true
		}
	}
}

func (m *model) callsBefore(u *upstream, l *activeLease) (n int) {
	for _, c := range m.calls {
		if c.u == u && c.ref != l.ref {
			n++
		}
	}
	return n
}

// broken is how the promise is broken, "" if it is not.
func (m *model) broken() string {
	if m.fault != "" {
		return m.fault
	}
	for ref := range m.used {
		if m.over[ref] {
			continue
		}
		for _, c := range m.calls {
			if c.u.incarnation == ref.Incarnation && c.ref != ref && c.runs() {
				return fmt.Sprintf("a call under %v runs while lease %v is in use", c.ref, ref)
			}
		}
	}
	return ""
}

// key tells states apart.
func (m *model) key() string {
	var b strings.Builder
	fmt.Fprint(&b, m.w, m.checkins, m.restarts, m.granted)
	for _, u := range m.p.order {
		fmt.Fprint(&b, "|", u.incarnation, u.closedLocked(), u.newest, u.unsure, u.question.free, u.reserved, u.draining,
			u.gone,
			len(u.poolCalls.calls), u.degraded)
		if l := u.lease; l != nil {
			fmt.Fprint(&b, " ", l.ref, l.ended, len(l.calls.calls), l.previous != nil)
		}
	}
	for _, c := range m.calls {
		fmt.Fprint(&b, " c", c.u.incarnation, c.ref, c.runs())
	}
	for _, ref := range m.granted {
		fmt.Fprint(&b, " ", m.used[ref], m.over[ref], m.returned[ref])
	}
	for _, w := range []*modelWorkflow{m.asked, m.verified} {
		if w != nil {
			fmt.Fprint(&b, " w", *w, m.verifies)
		}
	}
	if m.reserved != nil {
		fmt.Fprint(&b, " r", m.reserved.incarnation)
	}
	if m.answer != nil {
		fmt.Fprint(&b, " a", *m.answer)
	}
	return b.String()
}

// upstreamOf is the upstream that a lease's calls come to, as upstreamFor finds it.
func (m *model) upstreamOf(ref api.LeaseRef) *upstream {
	if u := m.p.findLocked("p/0", ref.Incarnation); u != nil {
		return u
	}
	return m.p.upstreams["p/0"]
}

// moves are what may happen next, by name.
func (m *model) moves() map[string]func() {
	moves := map[string]func(){}
	now := time.Now()
	for _, u := range slices.Clone(m.p.order) {
		if _, free := u.loadLocked(now); free {
			moves[fmt.Sprint("pool call on ", u.incarnation)] = func() { m.start(u, nil) }
		}
		if u.opensLocked() && m.reserved == nil {
			moves[fmt.Sprint("reserve ", u.incarnation)] = func() { u.reserved, m.reserved = true, u }
		}
		if (u.unsure || u.lease != nil && !u.lease.ended) && m.asked == nil && !u.gone && !u.draining {
			moves[fmt.Sprint("ask for ", u.incarnation)] = func() { w := m.w; m.asked, m.askedBy = &w, u }
		}
	}
	if m.reserved != nil && m.answer == nil {
		moves["the checkout reaches the workflow"] = func() { ref, _ := m.grant(); m.answer = &ref }
		moves["the checkout is lost"] = func() { m.reserved.unreserveLocked(); m.reserved = nil }
	}
	if m.answer != nil {
		moves["the checkout is answered"] = func() {
			if ref := *m.answer; ref != (api.LeaseRef{}) {
				if u := m.p.findLocked("p/0", ref.Incarnation); u != nil {
					u.adoptLocked(m.lease(ref), ref, now.Add(time.Hour))
				}
			}
			m.reserved.unreserveLocked()
			m.reserved, m.answer = nil, nil
		}
		moves["the answer to the checkout is lost"] = func() {
			m.reserved.unreserveLocked()
			m.reserved, m.answer = nil, nil
		}
	}
	if m.asked != nil {
		moves["the answer to the question comes"] = func() {
			m.askedBy.learnLocked(m.workerState(*m.asked), now)
			m.asked, m.askedBy = nil, nil
		}
		moves["the answer to the question is lost"] = func() { m.asked, m.askedBy = nil, nil }
	}
	for i, c := range m.calls {
		if c.runs() {
			moves[fmt.Sprint("the end of call ", i)] = func() {
				c.u.completeLocked(c.call, nil, now)
				m.calls = slices.Delete(m.calls, i, i+1)
			}
		}
	}
	if m.w.lease == (api.LeaseRef{}) {
		moves["a lease is granted without the gateway"] = func() { m.grant() }
	}
	for _, ref := range m.granted {
		u := m.upstreamOf(ref)
		moves[fmt.Sprint("a call under ", ref.Seq)] = func() {
			switch admission, _ := u.admitLeaseLocked(ref, lease.Operator, now); {
			case admission == admitted && len(m.calls) < 4:
				m.start(u, u.lease)
			case admission == unverified && m.verified == nil:
				w := m.w
				m.verified, m.verifies = &w, ref
			}
		}
		moves[fmt.Sprint("checkin of ", ref.Seq, " at the gateway")] = func() {
			if l := u.lease; l != nil && l.ref == ref {
				u.endLeaseLocked("it was checked in")
				m.over[ref] = true // its holder has given it up
				if len(l.calls.calls) > 0 {
					return // it waits, and is tried again
				}
				m.returned[ref] = true
				u.returnLocked(l, api.CheckinRequest{LeaseID: leaseID(ref), Outcome: api.OutcomeOK})
			}
			if len(m.checkins) < 2 {
				m.checkins = append(m.checkins, ref)
			}
		}
		if m.w.lease == ref {
			moves[fmt.Sprint("checkin of ", ref.Seq, " straight to the workflow")] = m.endLease
			moves[fmt.Sprint("lease ", ref.Seq, " expires, and the process is replaced")] = func() {
				m.endLease()
				m.replace()
			}
		}
	}
	if m.verified != nil {
		moves["the first call is verified"] = func() {
			ref, state := m.verifies, m.workerState(*m.verified)
			m.verified = nil
			u := m.upstreamOf(ref)
			if lease.Confirm(leaseID(ref), ref, state) != nil {
				u.deniedLocked(ref, state)
				return
			}
			u.adoptLocked(*state.Lease, ref, now.Add(time.Hour))
			if admission, _ := u.admitLeaseLocked(ref, lease.Operator, now); admission == admitted {
				m.start(u, u.lease)
			}
		}
	}
	for i, ref := range m.checkins {
		take := func() {
			if m.w.lease == ref {
				m.endLease()
			}
		}
		moves[fmt.Sprint("checkin ", i, " reaches the workflow")] = func() {
			take()
			m.checkins = slices.Delete(m.checkins, i, i+1)
		}
		moves[fmt.Sprint("checkin ", i, " reaches the workflow, and is repeated")] = take
		moves[fmt.Sprint("checkin ", i, " is lost")] = func() { m.checkins = slices.Delete(m.checkins, i, i+1) }
	}
	newest := m.p.upstreams["p/0"]
	if m.w.incarnation < maxIncarnation {
		moves["crash"] = func() {
			if m.w.lease != (api.LeaseRef{}) {
				m.endLease()
			}
			m.replace()
		}
		if newest.incarnation == m.w.incarnation {
			moves["the next process is ready"] = func() { m.open(m.w.incarnation + 1) }
		}
	}
	if newest.incarnation > m.w.incarnation && m.w.lease == (api.LeaseRef{}) {
		moves["the workflow switches"] = func() { m.w.incarnation = newest.incarnation }
	}
	for _, u := range m.p.order {
		if u.incarnation < m.w.incarnation && !u.draining {
			moves[fmt.Sprint("drain ", u.incarnation)] = u.retireLocked
		}
	}
	if m.restarts == 0 && m.reserved == nil {
		moves["the next agent takes the processes over"] = func() { m.restart(true) }
		moves["the next agent has no record of leases"] = func() { m.restart(false) }
	}
	return moves
}

// replace ends the processes, and starts the next one.
func (m *model) replace() {
	for _, u := range m.p.order {
		m.p.markGoneLocked(u)
	}
	m.settle()
	m.p.upstreams, m.p.older, m.p.order = map[string]*upstream{}, nil, nil
	m.w.incarnation++
	m.open(m.w.incarnation)
}

// restart lets the calls end, as an agent does that hands its processes over, and continues with what it has recorded.
func (m *model) restart(recorded bool) {
	m.restarts++
	for _, c := range m.calls {
		c.u.completeLocked(c.call, nil, time.Now())
	}
	m.calls, m.asked, m.verified = nil, nil, nil
	clear(m.returned) // the next agent asks the workflow, and closes the worker to others again if that knows no better
	earlier := slices.Clone(m.p.order)
	m.p.upstreams, m.p.older, m.p.order = map[string]*upstream{}, nil, nil
	for _, old := range earlier {
		u := m.open(old.incarnation)
		u.draining, u.gone = old.draining, old.gone
		var record *api.Lease
		if recorded && old.lease != nil && !old.lease.ended {
			lease := m.lease(old.lease.ref)
			lease.TTLMS = time.Hour.Milliseconds()
			record = &lease
		}
		u.resumeLeaseLocked(record)
		u.question.unclaimed = false // with this the workflow knows of the next agent
	}
}

// do makes a move.
func (m *model) do(t *testing.T, path []string) {
	for _, name := range path {
		move, found := m.moves()[name]
		require.True(t, found, "%s is no move after %v", name, path)
		move()
		m.settle()
	}
}

func TestNoOtherCallRunsWhileALeaseIsInUse(t *testing.T) {
	depth := 8
	if testing.Short() {
		depth = 7
	}
	seen := map[string]bool{}
	paths := [][]string{nil}
	states := 0
	for level := 0; level <= depth && len(paths) > 0; level++ {
		var next [][]string
		for _, path := range paths {
			m := newModel()
			m.do(t, path)
			if problem := m.broken(); problem != "" {
				require.FailNow(t, problem, "after\n%s", strings.Join(path, "\n"))
			}
			key := m.key()
			if seen[key] {
				m.p.dispatcher.end()
				continue
			}
			seen[key] = true
			states++
			for name := range m.moves() {
				next = append(next, append(slices.Clip(slices.Clone(path)), name))
			}
			m.p.dispatcher.end()
			m.p.dispatcher.work.Wait()
		}
		paths = next
	}
	t.Logf("%d states, %d moves deep", states, depth)
}
