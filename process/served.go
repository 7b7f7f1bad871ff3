package process

import (
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
)

// Served counts calls, which the gateway counts. The exit record shares that of an incarnation, so that the last
// calls count too, which end after the process.
type Served struct {
	InFlight               atomic.Int64
	requests, failed, took atomic.Int64
}

// Served is what the incarnation has served.
func (p *Process) Served() *Served { return p.served }

// Add counts a call that has ended.
func (s *Served) Add(failed bool, took time.Duration) {
	s.requests.Add(1)
	if failed {
		s.failed.Add(1)
	}
	s.took.Add(int64(took))
}

// Usage counts the calls that have ended.
func (s *Served) Usage() api.Usage {
	took, failed := time.Duration(s.took.Load()), s.failed.Load() // before the calls of which they are a part
	return api.Usage{Requests: s.requests.Load(), Failed: failed, TotalMS: took.Milliseconds()}
}

// Took is the time of the calls that have ended.
func (s *Served) Took() time.Duration { return time.Duration(s.took.Load()) }

// Restore continues with what an earlier agent has counted.
func (s *Served) Restore(u api.Usage) {
	s.requests.Store(u.Requests)
	s.failed.Store(u.Failed)
	s.took.Store(int64(time.Duration(u.TotalMS) * time.Millisecond))
}
