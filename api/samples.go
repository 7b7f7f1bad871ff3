package api

import "time"

// MaxRecentSamples bounds RecentSamples: ten minutes at the regular pace.
const MaxRecentSamples = 60

// RecentSamples are the newest samples of a worker on one host, oldest first, over its incarnations there. The lists
// have the same length, at most MaxRecentSamples. An answer of GET /v1/pools/{pool}/samples is a list of them.
type RecentSamples struct {
	Worker string `json:"worker"`
	// AgeMS is how long ago each sample was taken, by its host's clock: no clocks of two machines are compared.
	AgeMS       []int64 `json:"age_ms"`
	Incarnation []int64 `json:"incarnation"`
	MemoryBytes []int64 `json:"memory_bytes"`
	// CPUPercent is in percent of a core. It, CallsPerMinute and Score, 0 to 100, are rounded to a tenth.
	CPUPercent     []float32 `json:"cpu_percent"`
	CallsPerMinute []float32 `json:"calls_per_minute"`
	Score          []float32 `json:"score"`
}

// Valid reports whether the lists have the same length, at most MaxRecentSamples.
func (r RecentSamples) Valid() bool {
	n := len(r.AgeMS)
	return n <= MaxRecentSamples && len(r.Incarnation) == n && len(r.MemoryBytes) == n && len(r.CPUPercent) == n &&
		len(r.CallsPerMinute) == n && len(r.Score) == n
}

// RecentQueue is how long the queue of a pool at one gateway was: for each of the newest intervals of RecentQueueStep,
// oldest first, the most calls and clients that waited for a worker at the same time. The lists have the same length,
// at most MaxRecentSamples; they are empty if the gateway has had no worker, call or client of the pool lately. With it
// come the figures of the pool. It is the answer of GET /v1/pools/{pool}/queue.
type RecentQueue struct {
	Host string `json:"host"`
	// AgeMS is how long ago each interval began, by the host's clock. The newest one has not ended.
	AgeMS   []int64 `json:"age_ms"`
	Waiting []int64 `json:"waiting"`
	// Minutes are those of the last hour, oldest first, since the gateway has known the pool. The newest one may not have
	// ended.
	Minutes []Figures `json:"minutes"`
	// Methods are those that were called in the last half of an hour to hour.
	Methods []MethodFigures `json:"methods"`
}

// RecentQueueStep is the length of an interval of RecentQueue.
const RecentQueueStep = 10 * time.Second

// Valid reports whether the lists have the same length, at most MaxRecentSamples, and there are at most FigureMinutes.
func (r RecentQueue) Valid() bool {
	return len(r.AgeMS) <= MaxRecentSamples && len(r.Waiting) == len(r.AgeMS) && len(r.Minutes) <= FigureMinutes
}

// Readiness is the body of GET /readyz of a gateway.
type Readiness struct {
	// Status is ready while calls are served (200), else fenced or closing (503).
	Status string `json:"status"`
	Host   string `json:"host"`
	// ControlPlane is ok, or lost while Temporal does not answer.
	ControlPlane string `json:"control_plane"`
	// LostForMS is how long Temporal has not answered.
	LostForMS int64 `json:"lost_for_ms,omitempty"`
}
