package tempool

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// Background renewal.
const (
	renewTimeout  = 10 * time.Second // of one attempt, and at most half of what is left of the lease
	renewMinPause = 20 * time.Millisecond
	renewMaxPause = 5 * time.Second // between failed attempts
)

// keepRenewed renews the lease in the background until its checkin, its loss or the end of ctx.
func (s *leaseState) keepRenewed(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	s.stopRenewal = func() {
		cancel(nil)
		<-stopped
	}
	err := s.client.goBackground(func(life context.Context) {
		defer close(stopped)
		defer cancel(nil)
		defer context.AfterFunc(life, func() { cancel(errClosed) })()
		failure := s.renewLoop(ctx)
		s.mu.Lock()
		checkedIn := s.checkedIn
		s.mu.Unlock()
		if !checkedIn {
			s.finish(failure)
		}
	})
	if err != nil {
		close(stopped)
		s.finish(err)
	}
}

// renewLoop renews the lease before it expires and returns why it stops.
func (s *leaseState) renewLoop(ctx context.Context) error {
	failures, pause := 0, s.nextRenewal(0)
	for sleep.For(ctx.Done(), pause) {
		left := time.Until(s.until())
		if left <= 0 && s.client.fixed == nil {
			left = 2 * renewTimeout
		}
		attempt, cancel := context.WithTimeout(ctx, max(renewMinPause, min(renewTimeout, left/2)))
		err := s.renew(attempt)
		cancel()
		switch api.CodeOf(err) {
		case api.CodeLeaseFenced, api.CodeLeaseNotFound, api.CodeWorkerNotFound, api.CodeInvalid:
			return err
		}
		if err == nil {
			failures = 0
		} else {
			failures++
			if s.client.fixed != nil && !time.Now().Before(s.until()) {
				return cmp.Or(context.Cause(ctx), err)
			}
		}
		pause = s.nextRenewal(failures)
		if s.client.fixed != nil {
			pause = min(pause, time.Until(s.until()))
		}
	}
	return context.Cause(ctx)
}

// nextRenewal returns the pause before the next attempt: about half of the TTL, or a growing backoff after failures.
// With Temporal, an expiry by this clock ends nothing: only the worker's workflow decides whether the lease has ended.
func (s *leaseState) nextRenewal(failures int) time.Duration {
	if failures > 0 {
		pause := min(max(s.ttl/16, renewMinPause)<<min(failures-1, 8), renewMaxPause)
		return pause/2 + rand.N(pause)
	}
	half := s.ttl / 2
	return max(renewMinPause, half-rand.N(half/4+1))
}
