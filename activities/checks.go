package activities

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
)

// checkInterval is the time between two rounds over all incarnations. A round checks an incarnation against its rules
// if the facts that they are about have changed: an idle incarnation is checked with each sample, not every second.
const checkInterval = time.Second

// facts are what the rules of an incarnation refer to, other than its age: a sample follows soon after that.
type facts struct {
	sampled  time.Time
	requests int64 // 0 if the rules do not limit them
	exceeded bool  // a limit
}

// requestChecks makes each monitor check its incarnation if the facts of that have changed, every checkInterval until
// ended is closed.
func (s *monitors) requestChecks(ended <-chan struct{}) {
	var all []*monitor
	for range sleep.Ticks(ended, checkInterval) {
		s.mu.Lock()
		all = slices.AppendSeq(all[:0], maps.Values(s.all))
		s.mu.Unlock()
		for _, m := range all {
			m.requestCheck()
		}
	}
}

// requestCheck has the incarnation checked if its facts have changed since the last round, if its rules are new, or if
// its memory grows fast.
func (m *monitor) requestCheck() {
	now := facts{sampled: m.p.LatestSample().At, exceeded: m.p.Violation().Limit != ""}
	if m.current().Rules.RequestLimit > 0 {
		now.requests = m.host.requestCount(m.p)
	}
	m.mu.Lock()
	due := now != m.lastFacts || m.growing
	m.lastFacts = now
	m.mu.Unlock()
	if due {
		sleep.Wake(m.due)
	}
}

// takeRules returns what is observed from now on.
func (m *monitor) takeRules() api.WatchRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastFacts = facts{}
	return m.request
}

func (m *monitor) setGrowing(growing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.growing = growing
}

// check adds the newest sample to the incarnation's health and returns why it should be replaced; no cause means that
// it should not. While memory approaches its limit faster than samples arrive, it takes a sample itself; and it
// measures memory that was estimated before that decides.
func (h *Host) check(ctx context.Context, p *process.Process, r api.WatchRequest) (api.Cause, string) {
	health := h.health.of(p)
	sample := p.LatestSample()
	if health.needsSample(r.Rules) && time.Since(sample.At) >= checkInterval {
		if fresh, err := p.Sample(ctx); err == nil { // on an error the process is ending
			sample = fresh
		}
	}
	done := h.served(p)
	h.sampled(p, sample, done, r.Health)
	if excess := p.Violation(); r.Rules.Limits && excess.Limit != "" {
		return api.CauseLimits, "Replacing the worker: " + excess.Reason + "."
	}
	age := time.Since(p.Info().ReadyAt)
	cause, reason := health.replacement(r.Rules, done.requests, age)
	if cause == "" || cause == api.CauseRequests || !health.isEstimated() {
		return cause, reason
	}
	if exact, err := p.FreshSample(ctx); err == nil {
		h.sampled(p, exact, done, r.Health)
	}
	return health.replacement(r.Rules, done.requests, age)
}
