package policy

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Rotation is when a healthy incarnation is replaced. A limit of 0 or less is none.
type Rotation struct {
	MaxRequests int64
	// Jitter, a fraction within [0,1), spreads the request limit of each incarnation up and down, so that workers that started
	// together are not rotated together. Memory and uptime have no jitter.
	Jitter         float64
	MaxMemoryBytes int64 // of the whole process tree
	MemoryBaseline int64 // that MaxMemoryBytes was derived from; 0 if it was not
	MaxUptime      time.Duration
}

// Life is what an incarnation has used so far.
type Life struct {
	Requests    int64
	MemoryBytes int64 // of the whole process tree
	Uptime      time.Duration
}

// RequestLimit is how many requests one incarnation serves: MaxRequests spread within ±Jitter by random in [0,1), at least 1;
// or 0 for no limit.
func (r Rotation) RequestLimit(random float64) int64 {
	if r.MaxRequests <= 0 {
		return 0
	}
	jitter := unit(r.Jitter)
	limit := math.Round(float64(r.MaxRequests) * (1 - jitter + 2*jitter*unit(random)))
	if limit >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(1, int64(limit))
}

// Next decides whether an incarnation is replaced: Restart if a limit is reached, else Rest. The reason names every limit that is reached.
// random, in [0,1), sets the request limit: pass the same number at every call for an incarnation.
func (r Rotation) Next(life Life, random float64) Decision {
	var reached []string
	if limit := r.RequestLimit(random); limit > 0 && life.Requests >= limit {
		reached = append(reached, fmt.Sprintf("served %s (limit %d, rotation.max_requests)", counted(life.Requests, "request"), limit))
	}
	if r.MaxMemoryBytes > 0 && life.MemoryBytes >= r.MaxMemoryBytes {
		key := keyMaxMemory
		if r.MemoryBaseline > 0 {
			key = fmt.Sprintf("%s, baseline %s", keyAutoMaxMemory, megabytes(r.MemoryBaseline))
		}
		reached = append(reached, fmt.Sprintf("its process tree uses %s of memory (limit %s, %s)",
			megabytes(life.MemoryBytes), megabytes(r.MaxMemoryBytes), key))
	}
	if r.MaxUptime > 0 && life.Uptime >= r.MaxUptime {
		reached = append(reached, fmt.Sprintf("up for %s (limit %s, rotation.max_uptime)", shown(life.Uptime), shown(r.MaxUptime)))
	}
	if len(reached) == 0 {
		return Decision{Action: Rest, Reason: "No rotation limit is reached."}
	}
	return Decision{Action: Restart, Reason: "Rotating worker: " + strings.Join(reached, "; ") + "."}
}
