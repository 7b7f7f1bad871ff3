// Package lease decides what clients' leases allow on the processes of one host. It knows no process, no lock and no
// HTTP: State is a value, its methods are decisions, and the model in its tests tries them in every order of events.
package lease

import (
	"time"

	"github.com/tempool/tempool/api"
)

// State is what a host knows of the leases on one incarnation of a worker.
//
// The promise to the holder of a lease is that between the first call under it and its end no other call runs on the
// process, and nobody else's lease is honoured.
type State struct {
	// Newest has the incarnation, and the number of the newest lease that was seen here, granted or not; each older one
	// is fenced.
	Newest api.LeaseRef
	// Held is the lease that counts, zero for none. It lasts until Expires by this host's monotonic clock; no call starts
	// under it once Ended says why.
	Held    api.LeaseRef
	Expires time.Time
	Ended   string
	Doubt   Doubt
	// Free says that the earlier agent of a process which was taken over left no lease in use. That counts while Temporal
	// does not answer.
	Free bool
	// Reserved says that a checkout through this host is under way.
	Reserved bool
	// CheckedIn is when the workflow was last known to have taken a checkin, of whatever lease.
	CheckedIn time.Time
}

// Doubt says whether a host knows who has leased an incarnation.
type Doubt int

const (
	// Certain means that Held is all there is, or that a first call under another lease will show it.
	Certain Doubt = iota
	// Unsure means that the worker's workflow has to be asked.
	Unsure
	// Unclaimed means that the process was taken over from an earlier agent, and its workflow has not claimed it: what the
	// workflow says until then may be about the time before.
	Unclaimed
)

// New is the State of an incarnation that has just started: nobody can have leased it.
func New(incarnation int64) State { return State{Newest: api.LeaseRef{Incarnation: incarnation}} }

// Open reports whether calls of the pool may start.
func (s State) Open() bool { return s.Doubt == Certain && !s.Reserved && s.Held == (api.LeaseRef{}) }

// Verdict is about a call under a lease.
type Verdict int

const (
	Admitted   Verdict = iota
	Fenced             // a newer lease was seen
	HasEnded           // see State.Ended
	Waiting            // the process is not claimed yet
	Unknown            // the workflow must confirm the lease
	HasExpired         // and Temporal, which may have renewed it, does not answer
)

// Admit says whether a call under the lease ref may start; lost, that Temporal does not answer.
func (s State) Admit(ref api.LeaseRef, now time.Time, lost bool) Verdict {
	held := s.Held == ref
	switch {
	case ref.Older(s.Newest):
		return Fenced
	case held && s.Ended != "":
		return HasEnded
	case s.Doubt == Unclaimed && !lost:
		return Waiting
	case held && s.Doubt != Certain && !lost:
		return Unknown
	case held && now.Before(s.Expires):
		return Admitted
	case held && lost:
		return HasExpired
	}
	return Unknown
}

// Alone says whether a call that was admitted under a lease may reach the process: others counts the calls on it that
// are not under that lease, and those that were cancelled and not given up yet.
func Alone(others int) bool { return others == 0 }

// Adopt makes a lease that the workflow has confirmed the one that counts, and fences those before it. It reports false
// when that lease is fenced or has ended.
func (s State) Adopt(ref api.LeaseRef, expires time.Time) (State, bool) {
	switch {
	case ref.Older(s.Newest):
		return s, false
	case s.Held == ref:
		if expires.After(s.Expires) {
			s.Expires = expires
		}
		if s.Ended != "" {
			return s, false
		}
	default:
		s = s.Fence(ref)
		s.Held, s.Expires = ref, expires
	}
	s.Doubt, s.Free = Certain, false
	return s, true
}

// Fence fences each lease older than ref.
func (s State) Fence(ref api.LeaseRef) State {
	if s.Newest.Older(ref) {
		s.Newest = ref
	}
	if s.Held.Older(s.Newest) {
		s.Held, s.Expires, s.Ended = api.LeaseRef{}, time.Time{}, ""
	}
	return s
}

// End lets no further call start under the lease that counts.
func (s State) End(reason string) State {
	if s.Held != (api.LeaseRef{}) && s.Ended == "" {
		s.Ended = reason
	}
	return s
}

// Return ends a lease that its holder has returned here, and whose calls have ended. A clean one opens the incarnation;
// after another one, the workflow decides.
func (s State) Return(ref api.LeaseRef, clean bool) State {
	if s.Held != ref {
		return s
	}
	s = s.Fence(after(ref))
	if !clean {
		s = s.ask()
	}
	return s
}

// Overtaken reports whether an answer that the lease ref counts, which was asked for at sent, may be older than a
// checkin, perhaps that of ref. A checkin of the lease that counts here ends it here, so others do not matter to it.
func (s State) Overtaken(ref api.LeaseRef, sent time.Time) bool {
	return s.Held != ref && !s.CheckedIn.Before(sent)
}

// Returned takes it that the workflow has the checkin of a lease, with an outcome that is not known here; proved says
// that its sender has shown the right to the lease that counts, and running counts the calls under that. Any other
// number may be made up, and would fence those who get a lease later. The workflow denies a lease that was never used
// here.
func (s State) Returned(ref api.LeaseRef, proved bool, running int, now time.Time) State {
	s.CheckedIn = now
	switch {
	case s.Held != ref, !proved:
		return s
	case running > 0: // the workflow is asked until they have ended
		return s.End("it was checked in").ask()
	}
	return s.Fence(after(ref)).ask()
}

// TakeOver is the State of a process that an earlier agent has served, which has recorded the lease in use, zero for
// none. It stays closed until its workflow has said who has leased it.
func TakeOver(incarnation int64, recorded api.LeaseRef, expires time.Time) State {
	s := New(incarnation)
	if s.Free = recorded == (api.LeaseRef{}); !s.Free {
		s, _ = s.Adopt(recorded, expires)
	}
	s.Doubt = Unclaimed
	return s
}

// Claim takes it that the workflow has claimed a process that was taken over.
func (s State) Claim() State {
	if s.Doubt == Unclaimed {
		s.Doubt = Unsure
	}
	return s
}

// Assume settles what cannot be asked while Temporal does not answer: the record of the earlier agent counts.
func (s State) Assume() State {
	if s.Doubt != Certain && s.Free {
		s.Doubt, s.Free = Certain, false
	}
	return s
}

// Asks says whether the workflow has to be asked who has leased the incarnation: in doubt, or when a lease is over and
// nobody has said so; early says that others wait, and the holder may have returned it without this host.
func (s State) Asks(now time.Time, early bool) bool {
	switch {
	case s.Doubt == Unclaimed:
		return false
	case s.Doubt == Unsure:
		return true
	}
	return s.Held != (api.LeaseRef{}) && (early || !now.Before(s.Expires))
}

// Answer is what a workflow says of its worker.
type Answer struct {
	Incarnation int64
	Seq         int64        // of the newest lease that it has granted
	Lease       api.LeaseRef // that counts; zero for none
	Expires     time.Time    // of Lease, by this host's monotonic clock
	Sent        time.Time    // when it was asked for
	Settled     bool         // without a lease: it is ready, or suspended by an order that this host knows
}

// Learn takes the answer of the workflow, which may be older than what is known here; running counts the calls under
// Held.
func (s State) Learn(a Answer, running int) State {
	switch own := s.Newest.Incarnation; {
	case a.Lease != (api.LeaseRef{}) && s.Overtaken(a.Lease, a.Sent):
		return s
	case a.Incarnation < own: // this one is about to take over: nobody can have leased it
		return s.settle()
	case a.Incarnation > own, s.Held.Seq > a.Seq: // it is to be drained; or the answer is older
		return s
	case a.Lease != (api.LeaseRef{}):
		next, _ := s.Adopt(a.Lease, a.Expires)
		return next
	case !a.Settled:
		return s
	case s.Held != (api.LeaseRef{}) && running > 0:
		return s.End("it was checked in").ask()
	case s.Held != (api.LeaseRef{}):
		s = s.Fence(after(s.Held))
	}
	return s.settle()
}

func (s State) settle() State {
	s.Doubt, s.Free = Certain, false
	return s
}

// ask closes the incarnation until its workflow has said who may use it.
func (s State) ask() State {
	if s.Doubt == Certain {
		s.Doubt = Unsure
	}
	s.Free = false
	return s
}

// after is the least number that fences ref.
func after(ref api.LeaseRef) api.LeaseRef {
	ref.Seq++
	return ref
}
