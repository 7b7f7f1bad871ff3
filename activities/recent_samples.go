package activities

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

const (
	// recentPace is the least time between two samples that are kept; a newer one replaces the last one before.
	recentPace = process.DefaultSampleEvery / 2
	// recentFor is how long the samples of a worker are kept after its newest one: it may be on another host.
	recentFor = 20 * time.Minute
)

// recentSample is one sample of a worker, in 40 bytes.
type recentSample struct {
	at                time.Duration // since recentSamples.began
	incarnation       int64
	memory            int64
	cpu, calls, score float32
}

// recentSamples hold what plots show of the workers of a host: at most api.MaxRecentSamples of each, over its
// incarnations, so that they show how the one that has crashed fared. The zero value is ready to use.
type recentSamples struct {
	mu    sync.Mutex
	began time.Time
	of    map[string][]recentSample // oldest first
}

// add adds a sample of a worker that was taken at a time of this process.
func (r *recentSamples) add(worker string, at time.Time, s recentSample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of, r.began = map[string][]recentSample{}, at
	}
	s.at = at.Sub(r.began)
	list, known := r.of[worker]
	if !known {
		maps.DeleteFunc(r.of, func(_ string, old []recentSample) bool { return s.at-old[len(old)-1].at > recentFor })
	}
	for len(list) > 0 && list[len(list)-1].at >= s.at { // a clock that was set back
		list = list[:len(list)-1]
	}
	if n := len(list); n > 1 && list[n-1].incarnation == s.incarnation && list[n-1].at-list[n-2].at < recentPace {
		list = list[:n-1]
	}
	if len(list) == api.MaxRecentSamples {
		list = slices.Delete(list, 0, 1)
	}
	r.of[worker] = append(list, s)
}

// list returns the samples of the workers of a pool with these numbers, nil for all, sorted by name.
func (r *recentSamples) list(pool string, slots []int, now time.Time) []api.RecentSamples {
	var workers []string
	for _, slot := range slots {
		workers = append(workers, api.WorkerName(pool, slot))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slots == nil {
		for worker := range r.of {
			if strings.HasPrefix(worker, pool+"/") {
				workers = append(workers, worker)
			}
		}
	}
	slices.Sort(workers)
	all := []api.RecentSamples{}
	for _, worker := range slices.Compact(workers) {
		if list := r.of[worker]; len(list) > 0 {
			all = append(all, columns(worker, list, now.Sub(r.began)))
		}
	}
	return all
}

func columns(worker string, list []recentSample, now time.Duration) api.RecentSamples {
	n := len(list)
	c := api.RecentSamples{
		Worker: worker, AgeMS: make([]int64, n), Incarnation: make([]int64, n), MemoryBytes: make([]int64, n),
		CPUPercent: make([]float32, n), CallsPerMinute: make([]float32, n), Score: make([]float32, n),
	}
	for i, s := range list {
		c.AgeMS[i], c.Incarnation[i], c.MemoryBytes[i] = max(0, (now-s.at).Milliseconds()), s.incarnation, s.memory
		c.CPUPercent[i], c.CallsPerMinute[i], c.Score[i] = s.cpu, s.calls, s.score
	}
	return c
}

// tenth rounds to a tenth. What is not finite is 0, for JSON has no such number.
func tenth(x float64) float32 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return float32(math.Round(x*10) / 10)
}

// RecentSamples returns the newest samples of the workers of a pool with these numbers on this host, of all of them for
// nil.
func (h *Host) RecentSamples(pool string, slots []int) []api.RecentSamples {
	return h.recent.list(pool, slots, time.Now())
}
