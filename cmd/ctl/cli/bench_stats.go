package cli

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tempool/tempool/api"
)

// benchResult is the result of ctl bench.
type benchResult struct {
	Pool           string       `json:"pool"`
	Method         string       `json:"method"`
	Callers        int          `json:"callers"`
	DurationS      float64      `json:"duration_s"` // from the start of the first call to the end of the last
	Calls          int64        `json:"calls"`      // successful calls
	CallsPerSecond float64      `json:"calls_per_second"`
	Latency        latency      `json:"latency_ms"`
	Histogram      []bucket     `json:"histogram"`
	Failed         int64        `json:"failed"`
	Errors         []errorCount `json:"errors"`
}

// latency summarizes successful calls, in milliseconds, exact to 1 %.
type latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// bucket counts calls that took at most UpToMS milliseconds and more than the bucket before it.
type bucket struct {
	UpToMS float64 `json:"up_to_ms"`
	Count  int64   `json:"count"`
}

// errorCount counts the failures with one code; Message is that of the first.
type errorCount struct {
	Code    api.Code `json:"code"`
	Count   int64    `json:"count"`
	Message string   `json:"message"`
}

// benchStats collects latencies and failures. It is safe for concurrent use.
type benchStats struct {
	mu       sync.Mutex
	times    *hdrhistogram.Histogram // microseconds
	failures map[api.Code]*errorCount
}

// maxTrackedLatency is the histogram's upper end; longer calls count as this long.
const maxTrackedLatency = time.Hour

func newBenchStats() *benchStats {
	return &benchStats{times: hdrhistogram.New(1, maxTrackedLatency.Microseconds(), 2), failures: map[api.Code]*errorCount{}}
}

func (s *benchStats) record(took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		code, message := describe(err)
		if s.failures[code] == nil {
			s.failures[code] = &errorCount{Code: code, Message: message}
		}
		s.failures[code].Count++
		return
	}
	// RecordValue accepts every value within the histogram's range.
	_ = s.times.RecordValue(min(max(took, time.Microsecond), maxTrackedLatency).Microseconds())
}

// fill sets the statistics of r, measured over took.
func (s *benchStats) fill(r *benchResult, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := func(microseconds int64) float64 { return float64(microseconds) / 1000 }
	r.DurationS, r.Calls = took.Seconds(), s.times.TotalCount()
	if took > 0 {
		r.CallsPerSecond = float64(r.Calls) / took.Seconds()
	}
	r.Latency = latency{ms(s.times.Min()), s.times.Mean() / 1000, ms(s.times.ValueAtQuantile(50)), ms(s.times.ValueAtQuantile(90)),
		ms(s.times.ValueAtQuantile(99)), ms(s.times.Max())}
	r.Histogram = bucketsOf(s.times)
	r.Errors = []errorCount{}
	for _, f := range s.failures {
		r.Failed += f.Count
		r.Errors = append(r.Errors, *f)
	}
	slices.SortFunc(r.Errors, func(a, b errorCount) int { return int(b.Count - a.Count) })
}

// bucketsOf sorts times into buckets that end at 1, 2 and 5 times powers of ten, from the first that is not empty to the last.
func bucketsOf(times *hdrhistogram.Histogram) []bucket {
	all := []bucket{}
	for _, bin := range times.Distribution() {
		if bin.Count == 0 {
			continue
		}
		end := roundUp(float64(bin.To) / 1000)
		for len(all) > 0 && all[len(all)-1].UpToMS < end {
			all = append(all, bucket{UpToMS: roundUp(all[len(all)-1].UpToMS * 1.5)})
		}
		if len(all) == 0 {
			all = append(all, bucket{UpToMS: end})
		}
		all[len(all)-1].Count += bin.Count
	}
	return all
}

// roundUp returns the smallest of 1, 2 and 5 times a power of ten that is at least x.
func roundUp(x float64) float64 {
	exponent := math.Floor(math.Log10(x))
	for _, step := range []float64{1, 2, 5} {
		if end := scaled(step, int(exponent)); end >= x {
			return end
		}
	}
	return scaled(1, int(exponent)+1)
}

// scaled multiplies step by a power of ten. It divides for negative exponents, which keeps decimals exact.
func scaled(step float64, exponent int) float64 {
	if exponent < 0 {
		return step / math.Pow10(-exponent)
	}
	return step * math.Pow10(exponent)
}
