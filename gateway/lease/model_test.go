//go:build !race

package lease

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// The model tries every order of what may happen to one worker until no new state appears: calls of the pool and of two
// holders, leases granted through the gateway and without it, checkins by both roads, a stranger who makes up the
// numbers of leases, messages that are late, lost or repeated, a crash, a surge, a drain, an outage of Temporal, a host
// that is given up, and an agent that takes its processes over from another. The workflow is a few lines; the host's
// decisions are those of the product. It runs in one goroutine, so the race detector would only make it take minutes.
const (
	maxSeq         = 2
	maxIncarnation = 2
)

// bounds end the model: one holder with two disruptions (a crash, a surge, an outage, a takeover, a lease that
// expires), and two holders with one.
var bounds = []world{{leases: 1, budget: 2}, {leases: 2, budget: 1}}

// A call under a lease waits until it is alone on the process. One that was cancelled keeps the process until that
// gives it up.
const (
	none = iota
	waits
	runs
	cancelled
)

// workflow is what the worker's workflow knows.
type workflow struct {
	incarnation, seq int64
	lease            int64 // its seq; 0 for none
}

// incarnation is a process of the host and what the host knows of it.
type incarnation struct {
	live, draining bool
	state          State
	pool           int8             // calls of the pool in flight
	under          [maxSeq + 1]int8 // the call under each lease
}

// world is one state of everything. It is comparable.
type world struct {
	w        workflow
	away     bool                            // the host was given up: the workflow's process is elsewhere
	procs    [maxIncarnation + 1]incarnation // by number
	on       [maxSeq + 1]int64               // the incarnation that each lease was granted on; 0 if it was not
	expired  [maxSeq + 1]bool
	used     [maxSeq + 1]bool // a call has run under it
	over     [maxSeq + 1]bool // it was returned, has expired, or ended with its process
	returned [maxSeq + 1]bool // at this gateway
	checkin  [maxSeq + 1]bool // under way to the workflow
	reserved int64            // the incarnation, by a checkout under way
	granted  int64            // the answer to it; -1 for a refusal, 0 for none
	asked    int64            // the incarnation that was asked about
	answer   workflow
	verified int64 // the lease whose first call is being verified
	seen     workflow
	ended    bool // its holder has told the gateway meanwhile that it has checked in
	lost     bool // Temporal does not answer
	wasLost  bool
	restarts int8
	leases   int64 // how many are granted at most
	budget   int8  // how many disruptions may follow
	fault    string
}

func ref(on, seq int64) api.LeaseRef { return api.LeaseRef{Incarnation: on, Seq: seq} }

var start = time.Unix(1_000_000, 0)

const ttl = time.Hour

func (m *world) now(seq int64) time.Time {
	if m.expired[seq] {
		return start.Add(2 * ttl)
	}
	return start
}

func (m *world) open(n int64) { m.procs[n] = incarnation{live: true, state: New(n)} }

// newest is the newest incarnation that lives here, 0 for none.
func (m *world) newest() int64 {
	for n := int64(maxIncarnation); n > 0; n-- {
		if m.procs[n].live {
			return n
		}
	}
	return 0
}

// others counts the calls on a process beside those under one lease.
func (i *incarnation) others(seq int64) int {
	n := int(i.pool)
	for s, call := range i.under {
		if call == cancelled || int64(s) != seq && call == runs {
			n++
		}
	}
	return n
}

// set is what the host does when it has decided: calls under a lease that counts no more are cancelled.
func (m *world) set(n int64, s State) {
	i := &m.procs[n]
	if old := i.state.Held.Seq; old != 0 && s.Held.Seq != old {
		switch i.under[old] {
		case waits:
			i.under[old] = none
		case runs:
			i.under[old] = cancelled
		}
	}
	i.state = s
}

func (m *world) adopt(n, seq int64) {
	if !m.procs[n].live {
		return
	}
	s, ok := m.procs[n].state.Adopt(ref(n, seq), start.Add(ttl))
	m.set(n, s)
	if ok {
		m.retireOlder(n)
	}
}

func (m *world) retireOlder(n int64) {
	for o := int64(1); o < n; o++ {
		m.procs[o].draining = true
		m.procs[o].state = m.procs[o].state.End("a newer lease was granted")
	}
}

// call is a call under a lease that comes to the host.
func (m *world) call(seq int64) {
	n := m.on[seq]
	if !m.procs[n].live {
		n = m.newest()
	}
	i := &m.procs[n]
	if n == 0 || i.draining || i.under[seq] != none {
		return
	}
	switch i.state.Admit(ref(m.on[seq], seq), m.now(seq), m.lost) {
	case Admitted:
		i.under[seq] = waits
		if m.returned[seq] {
			m.fault = fmt.Sprintf("a call starts under lease %d, which was returned here", seq)
		}
	case Unknown:
		if m.verified == 0 && m.asked == 0 && !m.lost { // one query at a time
			m.verified, m.seen = seq, m.w
		}
	}
}

func (m *world) grant() int64 {
	if m.w.lease != 0 || m.w.seq == m.leases {
		return -1
	}
	m.w.seq++
	m.w.lease = m.w.seq
	m.on[m.w.seq] = m.w.incarnation
	return m.w.seq
}

func (m *world) endLease() {
	m.over[m.w.lease] = true
	m.w.lease = 0
}

// gone ends the processes below n.
func (m *world) gone(n int64) {
	for o := int64(1); o < n; o++ {
		m.procs[o] = incarnation{}
		if m.reserved == o {
			m.reserved, m.granted = 0, 0
		}
		if m.asked == o {
			m.asked, m.answer = 0, workflow{}
		}
	}
	for seq, on := range m.on {
		m.over[seq] = m.over[seq] || on > 0 && on < n
	}
}

func (m *world) answerOf(w workflow) Answer {
	a := Answer{Incarnation: w.incarnation, Seq: w.seq, Settled: w.lease == 0, Sent: start}
	if w.lease != 0 {
		a.Lease, a.Expires = ref(m.on[w.lease], w.lease), start.Add(ttl)
	}
	return a
}

// broken is how the promise is broken, "" if it is not.
func (m *world) broken() string {
	if m.fault != "" {
		return m.fault
	}
	if seq := m.w.lease; seq != 0 && !m.over[seq] {
		n := m.on[seq]
		s := m.procs[n].state
		if ref(n, seq).Older(s.Newest) || s.Held.Seq == seq && s.Ended != "" {
			return fmt.Sprintf("lease %d counts, and its calls are refused", seq)
		}
	}
	for n := range m.procs {
		i := &m.procs[n]
		for seq, call := range i.under {
			inUse := m.used[seq] && !m.over[seq] && m.on[seq] == int64(n) &&
				!(m.expired[seq] && m.wasLost) // then its time is over by the host's clock
			if others := i.others(int64(seq)); others > 0 && (call == runs || inUse) {
				return fmt.Sprintf("%d other calls run on incarnation %d while lease %d is in use", others, n, seq)
			}
		}
	}
	return ""
}

var seed = maphash.MakeSeed()

// moves are what may happen next: next gets each one's name and result.
func (m *world) moves(next func(name string, n int64, after world)) {
	var after world
	try := func(name string, n int64, move func(w *world)) {
		after = *m
		move(&after)
		for seq := range after.over { // what cannot matter any more tells no states apart
			after.used[seq] = after.used[seq] && !after.over[seq]
			after.expired[seq] = after.expired[seq] && !after.over[seq]
			on := ref(after.on[seq], int64(seq))
			after.returned[seq] = after.returned[seq] && !on.Older(after.procs[on.Incarnation].state.Newest)
		}
		for n := range after.procs { // the next question is asked after the checkins of before
			if int64(n) != after.asked && (after.verified == 0 || int64(n) != after.on[after.verified]) {
				after.procs[n].state.CheckedIn = time.Time{}
			}
		}
		if after != *m {
			next(name, n, after)
		}
	}
	for n := int64(1); n <= maxIncarnation; n++ {
		m.movesOf(n, try)
	}
	if m.reserved != 0 {
		m.checkoutMoves(try)
	}
	for seq := int64(1); seq <= m.w.seq; seq++ {
		m.leaseMoves(seq, try)
	}
	if !m.lost {
		try("a lease is granted without the gateway, on", m.w.incarnation, func(w *world) { w.grant() })
	}
	if m.asked != 0 {
		try("the answer comes about", m.asked, func(w *world) {
			i := &w.procs[m.asked]
			running := 0
			if i.under[i.state.Held.Seq] != none {
				running = 1
			}
			s := i.state.Learn(m.answerOf(m.answer), running)
			if s.Held != i.state.Held && s.Held.Seq != 0 {
				w.retireOlder(m.asked)
			}
			w.set(m.asked, s)
			w.asked, w.answer = 0, workflow{}
		})
		try("the answer is lost about", m.asked, func(w *world) { w.asked, w.answer = 0, workflow{} })
	}
	if m.verified != 0 {
		try("the first call is verified under", m.verified, func(w *world) {
			seq := m.verified
			w.verified, w.seen, w.ended = 0, workflow{}, false
			on := ref(m.on[seq], seq)
			// Else the call is refused. It is not for a checkin of those who make numbers up.
			if m.seen.lease == seq && !(m.ended && m.procs[m.on[seq]].state.Overtaken(on, start)) {
				w.adopt(m.on[seq], seq)
				w.call(seq)
			}
		})
	}
	if newest := m.newest(); newest > m.w.incarnation && m.w.lease == 0 {
		try("the workflow switches to", newest, func(w *world) { w.w.incarnation = newest })
	}
	if m.lost {
		try("Temporal answers", 0, func(w *world) { w.lost = false })
	}
	if m.budget > 0 {
		m.disruptions(func(name string, n int64, move func(*world)) {
			try(name, n, func(w *world) { w.budget--; move(w) })
		})
	}
}

// disruptions are moves of which few happen in one history.
func (m *world) disruptions(try func(string, int64, func(*world))) {
	newest := m.newest()
	if m.w.incarnation < maxIncarnation {
		try("crash, of", m.w.incarnation, func(w *world) { w.replace() })
		if newest == m.w.incarnation {
			try("the next process is ready beside", newest, func(w *world) { w.open(newest + 1) })
		}
		try("the host is given up, and", m.w.incarnation, func(w *world) {
			w.endLease()
			w.over[0] = false
			w.w.incarnation++
			w.away = true
		})
	}
	if !m.lost {
		try("Temporal is lost", 0, func(w *world) { w.lost, w.wasLost = true, true })
	}
	if m.restarts == 0 && m.reserved == 0 {
		try("the next agent takes the processes over", 0, func(w *world) { w.restart() })
	}
}

func (m *world) movesOf(n int64, try func(string, int64, func(*world))) {
	i := &m.procs[n]
	if !i.live {
		return
	}
	inUse := i.state.Held.Seq != 0 && i.state.Ended == ""
	if !i.draining && i.state.Open() {
		if i.pool == 0 {
			try("a call of the pool starts on", n, func(w *world) { w.procs[n].pool++ })
		}
		if m.reserved == 0 && !m.lost {
			try("a checkout reserves", n, func(w *world) { w.reserved, w.procs[n].state.Reserved = n, true })
		}
	}
	if i.pool > 0 {
		try("the call of the pool ends on", n, func(w *world) { w.procs[n].pool-- })
	}
	asks := i.state.Asks(start, true) || inUse && i.state.Asks(start.Add(2*ttl), false)
	if asks && m.asked == 0 && m.verified == 0 && !i.draining && !m.lost {
		try("the workflow is asked about", n, func(w *world) { w.asked, w.answer = n, w.w })
	}
	if m.lost && !i.draining {
		try("what cannot be asked is assumed of", n, func(w *world) { w.procs[n].state = i.state.Assume() })
	}
	if m.w.incarnation == n {
		try("the workflow claims", n, func(w *world) { w.procs[n].state = i.state.Claim() })
	}
	if m.w.incarnation > n {
		try("drain of", n, func(w *world) { w.procs[n].draining = true })
		try("the superseded processes are killed below", n+1, func(w *world) { w.gone(n + 1) })
	}
	for seq := int64(1); seq <= m.leases; seq++ { // granted or not
		try("a stranger says that it has checked in", seq, func(w *world) {
			running := 0
			if i.under[seq] != none {
				running = 1
			}
			w.set(n, i.state.Returned(ref(n, seq), false, running, start))
		})
	}
	if next := m.w.seq + 1; next <= m.leases && m.verified == 0 && m.asked == 0 && !m.lost && !i.draining &&
		i.state.Admit(ref(n, next), start, false) == Unknown {
		try("a stranger calls under the lease that is granted next", next, func(w *world) { w.verified, w.seen = next, m.w })
	}
	for seq, call := range i.under {
		switch {
		case call == waits && Alone(i.others(int64(seq))):
			try("the call is alone, and begins under", int64(seq), func(w *world) {
				w.procs[n].under[seq], w.used[seq] = runs, true
			})
		case call == runs || call == cancelled:
			try("the call ends under", int64(seq), func(w *world) { w.procs[n].under[seq] = none })
		}
	}
}

func (m *world) checkoutMoves(try func(string, int64, func(*world))) {
	n := m.reserved
	release := func(w *world) {
		w.procs[n].state.Reserved = false
		w.reserved, w.granted = 0, 0
	}
	if m.granted == 0 && !m.lost {
		try("the checkout reaches the workflow of", n, func(w *world) { w.granted = w.grant() })
	}
	if m.granted != 0 {
		try("the checkout is answered of", n, func(w *world) {
			if w.granted > 0 {
				w.adopt(w.on[w.granted], w.granted)
			}
			release(w)
		})
	}
	try("the checkout or its answer is lost of", n, release)
}

func (m *world) leaseMoves(seq int64, try func(string, int64, func(*world))) {
	n := m.on[seq]
	try("a call comes under", seq, func(w *world) { w.call(seq) })
	i := &m.procs[n]
	if i.live {
		try("checkin at the gateway of", seq, func(w *world) {
			if i.state.Held.Seq == seq {
				w.over[seq] = true // its holder has given it up
				w.set(n, i.state.End("it was checked in"))
				if i.under[seq] != none {
					return // the checkin waits for its calls
				}
				w.returned[seq] = true
				w.set(n, w.procs[n].state.Return(ref(n, seq), true))
			}
			w.checkin[seq] = true
		})
		if m.over[seq] && m.w.lease != seq && i.under[seq] == none {
			try("the client tells the gateway that it has checked in", seq, func(w *world) {
				w.returned[seq] = m.granted != seq // else its holder has not got it yet
				w.ended = w.ended || m.verified == seq
				w.set(n, i.state.Returned(ref(n, seq), true, 0, start))
			})
		}
	}
	if m.checkin[seq] {
		take := func(w *world) {
			if w.w.lease == seq {
				w.endLease()
			}
		}
		if !m.lost {
			try("the checkin reaches the workflow of", seq, func(w *world) { take(w); w.checkin[seq] = false })
			try("the checkin reaches the workflow, and is repeated, of", seq, take)
		}
		try("the checkin is lost of", seq, func(w *world) { w.checkin[seq] = false })
	}
	if m.w.lease != seq {
		return
	}
	if m.asked == 0 && m.verified == 0 && !m.lost {
		try("the holder renews", seq, func(w *world) { w.verified, w.seen = seq, m.w })
	}
	if !m.expired[seq] && m.budget > 0 {
		try("the time is over of", seq, func(w *world) { w.expired[seq] = true; w.budget-- })
	}
	try("checkin straight to the workflow of", seq, func(w *world) { w.endLease() })
	if m.expired[seq] && m.w.incarnation < maxIncarnation {
		try("it expires, and the process is replaced, of", seq, func(w *world) { w.replace() })
	}
	if m.expired[seq] && !m.lost && !m.away && i.live && i.others(0) == 0 { // its calls were cancelled before
		try("it expires, and the process is reset, of", seq, func(w *world) {
			w.endLease()
			w.set(n, i.state.Fence(after(ref(n, seq))))
		})
	}
}

// replace ends the processes, and starts the next one.
func (m *world) replace() {
	m.w.lease = 0
	m.w.incarnation++
	m.gone(m.w.incarnation)
	m.away = false
	m.open(m.w.incarnation)
}

// restart lets the calls end, as an agent does that hands its processes over, and continues with what it has recorded.
func (m *world) restart() {
	m.restarts++
	m.asked, m.answer, m.verified, m.seen, m.ended = 0, workflow{}, 0, workflow{}, false
	m.checkin, m.returned = [maxSeq + 1]bool{}, [maxSeq + 1]bool{} // the next agent asks the workflow
	for n := range m.procs {
		i := &m.procs[n]
		if !i.live {
			continue
		}
		i.pool, i.under = 0, [maxSeq + 1]int8{}
		recorded := i.state.Held
		if i.state.Ended != "" || m.expired[recorded.Seq] {
			recorded = api.LeaseRef{}
		}
		i.state = TakeOver(int64(n), recorded, start.Add(ttl))
	}
}

// visit is a state that was reached, and by which move from which.
type visit struct {
	from int32
	name string
	n    int64
}

// search tries everything from a first state. It returns the problem that it has found, "" for none, and the number of
// states.
func search(first world) (problem string, states int) {
	first.w.incarnation = 1
	first.open(1)
	known := map[uint64]int32{maphash.Comparable(seed, first): 0}
	visits, worlds := []visit{{from: -1}}, []world{first}
	var edges [][2]int32
	var open []int32
	for at := int32(0); len(worlds) > 0; at++ {
		w := worlds[0]
		worlds = worlds[1:]
		if problem := w.broken(); problem != "" {
			return problem + " after" + path(visits, at), len(visits)
		}
		if i := w.procs[w.w.incarnation]; w.away || !i.live || i.draining || i.state.Open() {
			open = append(open, at)
		}
		w.moves(func(name string, n int64, next world) {
			key := maphash.Comparable(seed, next)
			to, found := known[key]
			if !found {
				to = int32(len(visits))
				known[key] = to
				visits = append(visits, visit{at, name, n})
				worlds = append(worlds, next)
			}
			edges = append(edges, [2]int32{at, to})
		})
	}
	before := make([][]int32, len(visits)) // the states from which each one is reached
	for _, e := range edges {
		before[e[1]] = append(before[e[1]], e[0])
	}
	reaches := make([]bool, len(visits))
	for len(open) > 0 {
		at := open[len(open)-1]
		open = open[:len(open)-1]
		if !reaches[at] {
			reaches[at] = true
			open = append(open, before[at]...)
		}
	}
	if stuck := slices.Index(reaches, false); stuck >= 0 {
		return "the worker never opens again after" + path(visits, int32(stuck)), len(visits)
	}
	return "", len(visits)
}

func path(visits []visit, at int32) string {
	var steps []string
	for ; visits[at].from >= 0; at = visits[at].from {
		steps = append(steps, fmt.Sprintf("\n  %s %d", visits[at].name, visits[at].n))
	}
	slices.Reverse(steps)
	return strings.Join(steps, "")
}

func TestNoOtherCallRunsWhileALeaseIsInUse(t *testing.T) {
	for _, first := range bounds {
		problem, states := search(first)
		require.Empty(t, problem)
		t.Logf("%d states", states)
	}
}

// What a workflow does that is about to replace or reset its worker is not in the model.
func TestAWorkerThatIsNotSettledIsNotOpened(t *testing.T) {
	s := TakeOver(1, api.LeaseRef{}, start).Claim()
	require.False(t, s.Learn(Answer{Incarnation: 1}, 0).Open())
	require.True(t, s.Learn(Answer{Incarnation: 1, Settled: true}, 0).Open())
}

// Else whoever makes numbers up could keep the lease from being renewed.
func TestACheckinOfAnotherLeaseOvertakesNoRenewal(t *testing.T) {
	held, made := api.LeaseRef{Incarnation: 1, Seq: 1}, api.LeaseRef{Incarnation: 1, Seq: 9}
	s, _ := TakeOver(1, api.LeaseRef{}, start).Adopt(held, start.Add(time.Minute))
	s = s.Returned(made, false, 0, start.Add(time.Second))
	answer := Answer{Incarnation: 1, Lease: held, Seq: 1, Expires: start.Add(time.Hour), Sent: start}
	require.Equal(t, answer.Expires, s.Learn(answer, 0).Expires)
	answer.Lease, answer.Seq = made, made.Seq
	require.Equal(t, s, s.Learn(answer, 0))
}
