package events

import (
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
)

// limit bounds how many events of a type are emitted in a second, so that a flood of one type does not push all others
// out of the ring.
type limit struct {
	perSecond int64
	second    atomic.Int64 // which one used counts
	used      atomic.Int64
	omitted   atomic.Int64 // since the last event that was emitted
	total     atomic.Int64 // of omitted
	asked     *demand      // by whom events of the type are read; nil for one that is always emitted
}

// demand knows whether somebody reads a type of events. A reader that has stopped reading counts for a while, for it
// may be sending.
type demand struct {
	waiting atomic.Int64 // readers that wait for the next event
	last    atomic.Int64 // when one last read, in Unix seconds
}

// demandFor is how long an inactive reader counts.
const demandFor = 30

func (d *demand) exists(now int64) bool { return d.waiting.Load() > 0 || now-d.last.Load() < demandFor }

// begin counts a reader that waits, until it calls end.
func (d *demand) begin() (end func()) {
	d.waiting.Add(1)
	return func() {
		d.last.Store(time.Now().Unix())
		d.waiting.Add(-1)
	}
}

func newLimits() map[string]*limit {
	limits := map[string]*limit{}
	for eventType, perSecond := range map[string]int64{
		api.EventLeaseGranted: 50, api.EventLeaseRenewed: 50, api.EventLeaseReleased: 50, api.EventLeaseRefused: 10,
		api.EventCallFailed: 10, api.EventWorkerProbed: 20,
		api.EventSessionCreated: 20, api.EventSessionEvicted: 20, api.EventSessionExpired: 20, api.EventSessionBound: 20,
		api.EventSessionMigrated:    20,
		api.EventWorkerSampled:      5,
		api.EventSessionNotReleased: 20,
	} {
		limits[eventType] = &limit{perSecond: perSecond}
	}
	limits[api.EventWorkerSampled].asked = &demand{}
	return limits
}

// take reports whether one more may be emitted in the second now, and counts it.
func (l *limit) take(now int64) bool {
	if l.asked != nil && !l.asked.exists(now) {
		return false
	}
	if second := l.second.Load(); second != now && l.second.CompareAndSwap(second, now) {
		l.used.Store(0)
	}
	if l.used.Add(1) <= l.perSecond {
		return true
	}
	l.omitted.Add(1)
	l.total.Add(1)
	return false
}
