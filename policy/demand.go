package policy

import (
	"math"
	"time"

	"github.com/tempool/tempool/spec"
)

// Demand is the work that one gateway has for a pool at one moment.
type Demand struct {
	Calls   int // in flight, under leases of the gateway's own
	Waiting int // calls in the queue
	Leases  int // of clients, and clients that wait for one
	// QueueFull says that the queue holds no more calls; NoWorkers that the gateway's host has no worker that could serve
	// them.
	QueueFull, NoWorkers bool
}

// DemandMeter smooths the demand of one gateway, so that the gateway reports only what lasts.
type DemandMeter struct {
	MaxInflight int     // calls that one worker serves at once; a lease takes all of them
	PerWorker   float64 // calls that one worker is wanted for
	Max         int     // workers of the pool; demand for more is not reported
	// UpAfter is how long demand must be higher, on average, than what was reported last, and Hold how long it must be
	// lower throughout.
	UpAfter, Hold time.Duration
}

// leastHold and mostHold bound how long demand must have fallen before a gateway reports it, which is part of
// scale.down_after.
const (
	leastHold = 500 * time.Millisecond
	mostHold  = 15 * time.Second
)

// DemandMeterOf is the meter of one gateway's demand for a pool. That of a pool that does not follow it measures none.
func DemandMeterOf(s spec.Spec) DemandMeter {
	return DemandMeter{
		MaxInflight: s.Pool.MaxInflight, PerWorker: perWorker(s), Max: s.Scale.Max, UpAfter: s.Scale.UpAfter.D(),
		Hold: min(max(s.Scale.DownAfter.D()/4, leastHold), mostHold),
	}
}

// Load is the demand in calls. A lease counts as all the calls that its worker could serve.
func (m DemandMeter) Load(d Demand) float64 {
	return float64(d.Calls + d.Waiting + m.MaxInflight*d.Leases)
}

// Measured is a meter's record of one gateway's demand. The zero value means no demand.
type Measured struct {
	Reported float64 // load

	higherSince, lowerSince time.Time
	area, last              float64 // of the load since higherSince, and the load at the last sample
	lastAt                  time.Time
	peak                    float64 // since lowerSince
}

// Next takes one sample, and reports whether Reported has changed. It changes only if that changes the number of
// workers wanted for it. It rises to the mean of UpAfter, or at once if the queue is full or no worker is there; it
// falls to the peak of Hold.
func (m DemandMeter) Next(s Measured, d Demand, now time.Time) (next Measured, changed bool) {
	load := min(m.Load(d), float64(m.Max)*m.PerWorker)
	wanted, reported := workersFor(load, m.PerWorker), workersFor(s.Reported, m.PerWorker)
	if !s.higherSince.IsZero() {
		s.area += s.last * now.Sub(s.lastAt).Seconds()
	}
	s.last, s.lastAt = load, now
	if wanted > reported && (d.QueueFull || d.NoWorkers) {
		return Measured{Reported: load}, true
	}
	if wanted > reported && s.higherSince.IsZero() {
		s.higherSince, s.area = now, 0
	}
	if elapsed := now.Sub(s.higherSince); !s.higherSince.IsZero() && elapsed >= m.UpAfter {
		mean := s.area / elapsed.Seconds()
		if wanted > reported && workersFor(mean, m.PerWorker) > reported {
			return Measured{Reported: mean}, true
		}
		s.higherSince = time.Time{}
	}
	if wanted >= reported {
		s.lowerSince = time.Time{}
		return s, false
	}
	if s.lowerSince.IsZero() {
		s.lowerSince, s.peak = now, 0
	}
	s.peak = max(s.peak, load)
	if now.Sub(s.lowerSince) >= m.Hold {
		return Measured{Reported: s.peak}, true
	}
	return s, false
}

// workersFor is how many workers a load wants.
func workersFor(load, perWorker float64) int {
	if perWorker <= 0 || load <= 0 {
		return 0
	}
	const rounding = 1e-9 // 7 calls at 0.7 each want 10 workers, not 11
	return int(math.Ceil(load/perWorker - rounding))
}
