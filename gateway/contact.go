package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
)

// contact knows since when Temporal has not been heard of.
type contact struct {
	fenceAfter time.Duration
	began      time.Time
	heard      atomic.Int64 // nanoseconds after began
	lost       atomic.Bool
}

func newContact(fenceAfter time.Duration, now time.Time) *contact {
	return &contact{fenceAfter: fenceAfter, began: now}
}

// answered notes that Temporal is there, and reports whether it had been lost.
func (c *contact) answered(now time.Time) bool {
	c.heard.Store(int64(now.Sub(c.began)))
	return c.lost.Swap(false)
}

// silent notes that Temporal did not answer, and reports whether that is news.
func (c *contact) silent() bool { return !c.lost.Swap(true) }

// silence is how long Temporal has not been heard of; 0 while it is there.
func (c *contact) silence(now time.Time) time.Duration {
	if !c.lost.Load() {
		return 0
	}
	return now.Sub(c.began) - time.Duration(c.heard.Load())
}

// fenced reports whether the gateway must no longer trust its own leases.
func (c *contact) fenced(now time.Time) bool {
	return c.lost.Load() && c.silence(now) >= c.fenceAfter
}

func errFenced(silence time.Duration) *api.Error {
	return api.Errorf(api.CodeUnavailable, "Temporal has not been heard of for %s, so this gateway no longer trusts its leases; it serves again when Temporal answers",
		silence.Round(time.Second)).After(5 * time.Second)
}

// checkTimeout bounds one look whether Temporal answers.
const checkTimeout = 3 * time.Second

// keepContact looks every CheckEvery whether Temporal answers, until ctx ends. When it is back, the desks reconcile.
func (g *Gateway) keepContact(ctx context.Context) {
	ticker := time.NewTicker(g.config.CheckEvery)
	defer ticker.Stop()
	for {
		g.checkContact(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (g *Gateway) checkContact(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := g.config.Control.Check(ctx); err != nil {
		if g.life.Err() == nil && g.contact.silent() {
			g.logger.Warn("Temporal is lost; calls go on under the leases held", "fenced_after", g.config.FenceAfter, "error", err)
		}
		return
	}
	if !g.contact.answered(time.Now()) {
		return
	}
	g.logger.Info("Temporal is back")
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, d := range g.desks {
		d.reconcile()
	}
}
