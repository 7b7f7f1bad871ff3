package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/lifecycle"
)

const (
	// transitionRetention is how long the counts of a pool without a transition at this agent are kept.
	transitionRetention = time.Hour
	// maxTransitionPools bounds the pools that are counted; another one replaces the one that has rested longest.
	maxTransitionPools = 1000
)

// Transitions counts the transitions of workers by pool, from and to. The zero value is ready to use.
type Transitions struct {
	mu    sync.Mutex
	pools map[string]*poolTransitions
}

type poolTransitions struct {
	counts map[step]stepCount
	usedAt time.Time
}

type step struct{ from, to lifecycle.State }

type stepCount struct {
	n    int64
	time time.Duration // in the state from
}

// Count counts a transition of a worker of a pool.
func (t *Transitions) Count(pool string, transition lifecycle.Transition, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pools[pool]
	if p == nil {
		p = t.addLocked(pool, now)
	}
	p.usedAt = now
	at := step{transition.From, transition.To}
	c := p.counts[at]
	p.counts[at] = stepCount{c.n + 1, c.time + time.Duration(max(0, transition.DurationMS))*time.Millisecond}
}

func (t *Transitions) addLocked(pool string, now time.Time) *poolTransitions {
	if t.pools == nil {
		t.pools = make(map[string]*poolTransitions)
	}
	t.sweepLocked(now)
	if len(t.pools) >= maxTransitionPools {
		oldest := ""
		for name, p := range t.pools {
			if oldest == "" || p.usedAt.Before(t.pools[oldest].usedAt) {
				oldest = name
			}
		}
		delete(t.pools, oldest)
	}
	p := &poolTransitions{counts: make(map[step]stepCount)}
	t.pools[pool] = p
	return p
}

func (t *Transitions) sweepLocked(now time.Time) {
	maps.DeleteFunc(t.pools, func(_ string, p *poolTransitions) bool { return now.Sub(p.usedAt) >= transitionRetention })
}

// Describe implements prometheus.Collector. It sends nothing: the series depend on the pools.
func (t *Transitions) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (t *Transitions) Collect(out chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked(time.Now())
	s := sink{out}
	for pool, p := range t.pools {
		for at, c := range p.counts {
			s.value(transitionCount, float64(c.n), pool, string(at.from), string(at.to))
			s.value(transitionSeconds, c.time.Seconds(), pool, string(at.from), string(at.to))
		}
	}
}
