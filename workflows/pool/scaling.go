package pool

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
)

const (
	// maxLoad bounds the demand of one host, and maxDemandExpiry how long a report counts.
	maxLoad         = 1e6
	maxDemandExpiry = 24 * time.Hour
	// maxScaleDecisions is how many changes of size a pool remembers.
	maxScaleDecisions = 20
	// reserveTimeout bounds one search for a worker that can be removed. The next one follows after reservePause, which
	// doubles to reserveMaxPause while there is none.
	reserveTimeout  = 15 * time.Second
	reservePause    = 10 * time.Second
	reserveMaxPause = 5 * time.Minute
)

// ScalingState is the demand for a pool whose size follows it.
type ScalingState struct {
	Demand    []api.HostDemand    `json:"demand,omitempty"` // by host
	Scaling   policy.Scaling      `json:"scaling,omitzero"`
	Decisions []api.ScaleDecision `json:"scale_decisions,omitempty"` // oldest first
	// ScaleReason is why the pool has its size.
	ScaleReason string `json:"scale_reason,omitempty"`
	ScaleCause  string `json:"scale_cause,omitempty"`
	// Unreserved counts consecutive searches that found no worker to remove, because of NoneFree; the next one is at
	// ReserveAt.
	Unreserved int       `json:"unreserved,omitempty"`
	NoneFree   string    `json:"none_free,omitempty"`
	ReserveAt  time.Time `json:"reserve_at,omitzero"`
}

// scaling makes the size of the pool follow the demand.
type scaling struct {
	*pool
	reserving bool // a worker that is to go
}

// reported takes a report of the demand.
func (s *scaling) reported(m api.Demand) {
	if !s.Spec.Scale.Follows() || s.Stopping || m.Host == "" || math.IsNaN(m.Load) {
		return
	}
	m.Host = display.Truncate(m.Host, maxHost)
	i, known := slices.BinarySearchFunc(s.Demand, m.Host,
		func(d api.HostDemand, host string) int { return cmp.Compare(d.Host, host) })
	if known && m.Epoch < s.Demand[i].Epoch {
		return
	}
	expiry := min(max(time.Duration(m.ExpiryMS)*time.Millisecond, 0), maxDemandExpiry)
	d := api.HostDemand{
		Host: m.Host, Epoch: m.Epoch, Load: min(m.Load, maxLoad), Calls: m.Calls, Waiting: m.Waiting, Leases: m.Leases,
		At: s.Now(), Expires: s.Now().Add(expiry),
	}
	switch {
	case m.Load <= 0 && known:
		s.Demand = slices.Delete(s.Demand, i, i+1)
	case m.Load <= 0:
	case known:
		s.Demand[i] = d
	case len(s.Demand) < api.MaxDemands:
		s.Demand = slices.Insert(s.Demand, i, d)
	}
}

// load is the demand of all hosts, in calls.
func load(demand []api.HostDemand) (sum float64) {
	for _, d := range demand {
		sum += d.Load
	}
	return sum
}

// follow changes the size if the demand wants that.
func (s *scaling) follow() {
	if !s.Spec.Scale.Follows() || s.reserving {
		return
	}
	next := s.expire()
	load := load(s.Demand)
	var d policy.ScaleDecision
	s.Scaling, d = policy.ScaleOf(s.Spec).Decide(s.Scaling, s.Size, load, s.Now())
	s.ScaleReason, s.ScaleCause = d.Reason, string(d.Cause)
	if d.Delay > 0 {
		next = min(next, d.Delay)
	}
	if d.Size >= s.Size {
		s.Unreserved, s.NoneFree, s.ReserveAt = 0, "", time.Time{}
	}
	decision := api.ScaleDecision{At: s.Now(), From: s.Size, To: d.Size, Wanted: d.Wanted, Load: load, Reason: d.Reason}
	switch wait := s.ReserveAt.Sub(s.Now()); {
	case d.Size == s.Size:
	case s.Spec.Policy.Mode == spec.PolicyObserve:
		s.observe(decision)
	case d.Size > s.Size:
		s.record(decision)
		s.members.resize(d.Size, d.Reason)
	case wait > 0:
		s.ScaleCause = api.ScaleCauseLeased
		s.ScaleReason = fmt.Sprintf("%s; but %s, tried again at %s", d.Reason, s.NoneFree,
			s.ReserveAt.UTC().Format(time.TimeOnly))
		next = min(next, wait)
	default:
		s.stopOne(decision)
	}
	if next < never {
		s.wakeAfter(next)
	}
}

// never is longer than any report of demand counts.
const never = 2 * maxDemandExpiry

// expire drops reports that count no more, and returns when the next one does not.
func (s *scaling) expire() time.Duration {
	next := never
	s.Demand = slices.DeleteFunc(s.Demand, func(d api.HostDemand) bool {
		left := d.Expires.Sub(s.Now())
		if left > 0 {
			next = min(next, left)
		}
		return left <= 0
	})
	return next
}

// observe remembers a decision that is not carried out, unless it is the last one again.
func (s *scaling) observe(d api.ScaleDecision) {
	d.Observed = true
	if n := len(s.Decisions); n == 0 || !s.Decisions[n-1].Observed || s.Decisions[n-1].From != d.From ||
		s.Decisions[n-1].To != d.To {
		s.record(d)
	}
}

// record remembers a decision.
func (s *scaling) record(d api.ScaleDecision) {
	workflow.GetLogger(s.Ctx).Info("scaling by demand", "pool", s.name(), "from", d.From, "to", d.To, "wanted", d.Wanted,
		"load", d.Load,
		"worker", d.Worker, "observed", d.Observed, "reason", d.Reason)
	s.Decisions = append(s.Decisions, d)
	if excess := len(s.Decisions) - maxScaleDecisions; excess > 0 {
		s.Decisions = slices.Delete(s.Decisions, 0, excess)
	}
}

// stopOne stops one worker: one out of service, or one that the pool can lease, because then nobody uses it.
func (s *scaling) stopOne(decision api.ScaleDecision) {
	switch {
	case s.leaving() || s.disruptions.active() >= s.Spec.Rotation.MaxUnavailable:
		return // its end wakes the pool
	case s.Size == 1 && s.sessionsHost() != "":
		s.ScaleCause = api.ScaleCauseSessions
		s.ScaleReason = fmt.Sprintf("%s; the last worker stays, because host %s stores the sessions of the pool "+
			"(sessions.store = %q)", decision.Reason, s.SessionsHost, s.Spec.Sessions.Store)
		return
	}
	serving, down := s.members.byService()
	down = slices.DeleteFunc(down, func(number int) bool {
		w := s.slot(number)
		return w != nil && (w.State == lifecycle.Suspended || w.State == lifecycle.Draining || s.pressure.isStopped(number))
	})
	if len(down) > 0 {
		s.release(decision, slices.MinFunc(down, s.members.compareDown))
		return
	}
	if len(serving) > 0 {
		s.reserve(decision, serving)
	}
}

// leaving reports whether a worker is on its way out of the pool.
func (s *scaling) leaving() bool {
	return s.members.excess() > 0 ||
		slices.ContainsFunc(s.Roster, func(w slot) bool { return !s.isMember(w.Slot) && !w.isClosed() })
}

// release takes a worker out of the pool.
func (s *scaling) release(decision api.ScaleDecision, number int) {
	decision.From, decision.To, decision.Worker = s.Size, s.Size-1, s.worker(number)
	s.record(decision)
	s.Unreserved, s.NoneFree, s.ReserveAt = 0, "", time.Time{}
	s.members.resize(decision.To, decision.Reason)
	s.members.vacate([]int{number})
}

// reserve takes a lease on one of the workers and lets it go, if it is still to go then.
func (s *scaling) reserve(decision api.ScaleDecision, serving []int) {
	s.reserving = true
	request := api.ReserveWorkerRequest{Pool: s.name(), Slots: serving,
		RequestID: fmt.Sprintf("scale-%d", s.Now().UnixNano())}
	future := s.ask(api.ActivityReserveWorker, "lease a worker of pool "+s.name()+" that is to stop", reserveTimeout,
		request)
	s.OnFuture(future, func(f workflow.Future) {
		s.reserving = false
		var r api.ReserveWorkerResult
		if err := f.Get(s.Ctx, &r); err != nil {
			r.Problem = failure.Message(err)
		}
		w := s.slot(r.Slot)
		switch {
		case r.LeaseID == "":
			pause := min(reservePause<<min(s.Unreserved, 10), reserveMaxPause)
			s.Unreserved++
			s.ReserveAt, s.NoneFree = s.Now().Add(pause), display.Truncate(r.Problem, 2*maxReason)
		case s.Stopping || w == nil || !s.isMember(r.Slot) || !s.Spec.Scale.Follows() || s.Size != decision.From ||
			s.Spec.Policy.Mode == spec.PolicyObserve || policy.ScaleOf(s.Spec).Wanted(load(s.Demand)) >= s.Size:
			s.signalWorker(r.Slot, api.SignalCheckin, api.CheckinRequest{LeaseID: r.LeaseID, Outcome: api.OutcomeOK})
		default:
			w.EndLease = r.LeaseID
			s.release(decision, r.Slot)
		}
	})
}
