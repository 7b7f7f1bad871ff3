package activities

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
)

// checkInterval is the time between two looks of a monitor at the newest sample of its incarnation, and so the least
// time between two samples of one whose memory grows fast.
const checkInterval = time.Second

// needsCheck reports whether the incarnation has a sample that was not checked by the present rules, or whether its
// memory grows fast.
func (m *monitor) needsCheck() bool { return m.growing || !m.p.LatestSample().At.Equal(m.checked) }

// replacement adds the newest sample to the incarnation's health and returns why it should be replaced; no cause means
// that it should not. While memory approaches its limit faster than samples arrive, it takes a sample itself; and it
// measures memory that was estimated before that decides.
func (m *monitor) replacement(ctx context.Context) (api.Cause, string) {
	p, health, r := m.p, &m.health, m.observed
	sample := p.LatestSample()
	if health.needsSample(r.Rules) && time.Since(sample.At) >= checkInterval {
		if fresh, err := p.Sample(ctx); err == nil { // on an error the process is ending
			sample = fresh
		}
	}
	done := servedBy(p)
	m.sampled(sample, done, r.Health)
	if excess := p.Violation(); r.Rules.Limits && excess.Limit != "" {
		return api.CauseLimits, "Replacing the worker: " + excess.Reason + "."
	}
	age := time.Since(p.Info().ReadyAt)
	cause, reason := health.replacement(r.Rules, done.requests, age)
	if cause == "" || cause == api.CauseRequests || !health.isEstimated() {
		return cause, reason
	}
	if exact, err := p.FreshSample(ctx); err == nil {
		m.sampled(exact, done, r.Health)
	}
	return health.replacement(r.Rules, done.requests, age)
}
