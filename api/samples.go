package api

// MaxRecentSamples bounds RecentSamples: ten minutes at the regular pace.
const MaxRecentSamples = 60

// RecentSamples are the newest samples of a worker on one host, oldest first, over its incarnations there. The lists have the same length, at
// most MaxRecentSamples. An answer of GET /v1/pools/{pool}/samples is a list of them.
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
	return n <= MaxRecentSamples && len(r.Incarnation) == n && len(r.MemoryBytes) == n && len(r.CPUPercent) == n && len(r.CallsPerMinute) == n && len(r.Score) == n
}
