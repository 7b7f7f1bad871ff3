package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/sessions/expirylru"
)

const (
	// transitionRetention is how long the counts of a pool without a transition at this agent are kept.
	transitionRetention = time.Hour
	// maxTransitionPools bounds the pools that are counted; another one replaces the one that has rested longest.
	maxTransitionPools = 1000
)

// Transitions counts the transitions of workers by pool, from and to. NewTransitions makes it.
type Transitions struct {
	counts, seconds *prometheus.CounterVec

	mu    sync.Mutex
	pools *expirylru.LRU[struct{}] // those that are counted
}

// NewTransitions returns one that has counted nothing.
func NewTransitions() *Transitions {
	return &Transitions{counts: transitionCount.counterVec(), seconds: transitionSeconds.counterVec(),
		pools: expirylru.New[struct{}]()}
}

// Count counts a transition of a worker of a pool.
func (t *Transitions) Count(pool string, transition lifecycle.Transition, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked(now)
	if e := t.pools.Get(pool); e != nil {
		t.pools.Touch(e, now.UnixMilli(), transitionRetention.Milliseconds())
	} else {
		if t.pools.Len() >= maxTransitionPools {
			oldest := t.pools.Oldest()
			t.pools.Remove(oldest)
			t.forget(oldest.ID)
		}
		t.pools.Add(&expirylru.Entry[struct{}]{ID: pool, LastAccessed: now.UnixMilli(),
			TTL: transitionRetention.Milliseconds()})
	}
	from, to := string(transition.From), string(transition.To)
	t.counts.WithLabelValues(pool, from, to).Inc()
	t.seconds.WithLabelValues(pool, from, to).Add(float64(max(0, transition.DurationMS)) / 1000)
}

func (t *Transitions) sweepLocked(now time.Time) {
	for _, e := range t.pools.Sweep(now.UnixMilli()) {
		t.forget(e.ID)
	}
}

func (t *Transitions) forget(pool string) {
	t.counts.DeletePartialMatch(prometheus.Labels{"pool": pool})
	t.seconds.DeletePartialMatch(prometheus.Labels{"pool": pool})
}

// Describe implements prometheus.Collector. It sends nothing: the series depend on the pools.
func (t *Transitions) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (t *Transitions) Collect(out chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked(time.Now())
	t.counts.Collect(out)
	t.seconds.Collect(out)
}
