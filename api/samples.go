package api

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

// RecentQueue are the figures of a pool at one gateway, with how long its queue was. The lists are empty if the gateway
// has had no worker, call or client of the pool lately. It is the answer of GET /v1/pools/{pool}/queue.
type RecentQueue struct {
	Host string `json:"host"`
	// Minutes are those of the last hour, oldest first, since the gateway has known the pool. The newest one may not have
	// ended.
	Minutes []Figures `json:"minutes"`
	// Methods are those that were called in the last half of an hour to hour.
	Methods []MethodFigures `json:"methods"`
}

// Valid reports whether there are at most FigureMinutes.
func (r RecentQueue) Valid() bool { return len(r.Minutes) <= FigureMinutes }

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
