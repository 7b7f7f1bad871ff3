package activities

import (
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// processHealth holds the recent samples of one incarnation and what they say.
type processHealth struct {
	mu          sync.Mutex
	samples     []policy.Observation // oldest first, at most maxSamples
	estimated   bool                 // the memory of the newest sample is estimated
	served      time.Time            // when a sample first found a served call; zero before
	baseline    int64                // memory that the program needs, in bytes; 0 while that is not known
	callCounts  []callCount          // of the last callRateWindow
	counted     bool                 // callCounts are of counterAPICalls
	callsPerMin float64              // by the newest sample
	latest      *policy.Assessment
	streak      policy.Streak
	gradeReason string    // why latest and those before it end the incarnation; "" if they do not
	callTimeMS  int64     // time in calls when load was last computed
	loadAt      time.Time // before that, when the process became ready
}

// counterAPICalls is the counter of a program's own calls to others, such as models. A program that keeps it is graded
// by it instead of by the requests that it serves.
const counterAPICalls = "api_calls"

// callCount is the number of calls of an incarnation at a time.
type callCount struct {
	at    time.Time
	calls int64
}

// served is what an incarnation has done so far: requests served, and calls for its rate, which the program may have
// counted itself.
type served struct {
	requests, calls int64
	counted         bool
}

// servedBy returns what an incarnation has done so far.
func servedBy(p *process.Process) served {
	s := served{requests: p.Served().Usage().Requests}
	if s.calls, s.counted = p.Counts()[counterAPICalls]; !s.counted {
		s.calls = s.requests
	}
	return s
}

const (
	// maxSamples bounds the samples for prediction: several of its windows, and memory that does not grow with uptime.
	maxSamples = 120
	// callRateWindow is the time over which calls per minute are counted.
	callRateWindow = time.Minute
)

// add adds a sample. It reports false for one that is not newer than the last one, which changes nothing.
func (v *processHealth) add(s api.Sample, done served, health spec.Health) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.At.IsZero() || len(v.samples) > 0 && !s.At.After(v.samples[len(v.samples)-1].At) {
		return false
	}
	if v.served.IsZero() && done.requests > 0 {
		v.served = s.At
	}
	v.callsPerMin = v.callRateLocked(s.At, done)
	a := policy.GradingOf(health, v.baseline).Assess(policy.Reading{MemoryBytes: s.MemoryBytes, CPUPercent: s.CPUPercent,
		CallsPerMinute: v.callsPerMin})
	v.latest, v.estimated = &a, s.MemorySource == tree.Estimated
	v.streak, v.gradeReason = v.streak.Next(a)
	v.samples = append(v.samples, policy.Observation{At: s.At, MemoryBytes: s.MemoryBytes, Score: a.Score,
		ScoreKey: a.Key})
	v.samples = slices.Delete(v.samples, 0, max(0, len(v.samples)-maxSamples))
	if v.baseline == 0 {
		v.baseline = policy.Baseline(v.samples, v.served)
	}
	return true
}

// sampled adds a sample to the health of the process, and reports a new one.
func (m *monitor) sampled(s api.Sample, done served, health spec.Health) {
	h, p := m.host, m.p
	if m.health.add(s, done, health) {
		h.recent.add(p.Worker(), s.At, m.health.recent(p.Incarnation(), s))
		h.Observer.Sampled(processOf(p), toSample(s), done.requests)
	}
}

// recent is the newest sample as plots show it.
func (v *processHealth) recent(incarnation int64, s api.Sample) recentSample {
	v.mu.Lock()
	defer v.mu.Unlock()
	return recentSample{incarnation: incarnation, memory: s.MemoryBytes, cpu: tenth(s.CPUPercent),
		calls: tenth(v.callsPerMin), score: tenth(v.latest.Score)}
}

// callRateLocked adds a count and returns the calls per minute over callRateWindow, or since the process became ready.
func (v *processHealth) callRateLocked(at time.Time, done served) float64 {
	if done.counted != v.counted { // the program has begun to count its calls: from 0
		v.counted = done.counted
		for i := range v.callCounts {
			v.callCounts[i].calls = 0
		}
	}
	first := 0
	for first < len(v.callCounts)-1 && at.Sub(v.callCounts[first].at) > callRateWindow {
		first++
	}
	v.callCounts = append(slices.Delete(v.callCounts, 0, first), callCount{at, done.calls})
	// Probes and checkpoints sample, too: a few calls between two samples that are milliseconds apart would be thousands a
	// minute.
	span := max(at.Sub(v.callCounts[0].at), process.DefaultSampleEvery)
	return float64(done.calls-v.callCounts[0].calls) / span.Minutes()
}

// load returns the share of time spent in calls since the previous load, or since the process became ready. It exceeds
// 1 where calls overlap.
func (v *processHealth) load(callTimeMS int64, now time.Time) float64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	since, before := v.loadAt, v.callTimeMS
	v.callTimeMS, v.loadAt = callTimeMS, now
	span := now.Sub(since).Milliseconds()
	if span <= 0 {
		return 0
	}
	return float64(callTimeMS-before) / float64(span)
}

// replacement returns why the incarnation should be replaced: its limits first, then its grade, then the prediction. No
// cause means that it should not.
func (v *processHealth) replacement(rules api.WatchRules, requests int64, age time.Duration) (api.Cause, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if reason := policy.RotateForRequests(requests, rules.RequestLimit); reason != "" {
		return api.CauseRequests, reason
	}
	if len(v.samples) == 0 {
		return "", ""
	}
	if reason := v.memoryRotationLocked(rules); reason != "" {
		return api.CauseMemory, reason
	}
	if rules.Grade && v.gradeReason != "" && age >= rules.GradeAfter.D() {
		return api.CauseGrade, v.gradeReason
	}
	if reason := v.predictionLocked(rules).Next(v.samples); rules.Window > 0 && reason != "" {
		return api.CausePrediction, reason
	}
	return "", ""
}

// memoryRotationLocked is why to rotate for the memory of the newest sample; "" if not.
func (v *processHealth) memoryRotationLocked(rules api.WatchRules) string {
	if rules.AutoMemory && v.baseline == 0 {
		return policy.RotateWithoutBaseline(v.samples)
	}
	baseline := int64(0)
	if rules.AutoMemory {
		baseline = v.baseline
	}
	return policy.RotateForMemory(v.samples[len(v.samples)-1].MemoryBytes, v.maxMemoryLocked(rules), baseline)
}

// maxMemoryLocked is the memory at which the incarnation is rotated; 0 if there is no such limit, or not yet.
func (v *processHealth) maxMemoryLocked(rules api.WatchRules) int64 {
	switch {
	case !rules.AutoMemory:
		return rules.MaxMemoryBytes
	case v.baseline > 0:
		return policy.AutoMaxMemory(v.baseline)
	}
	return 0
}

// needsSample reports whether memory approaches its limit faster than the regular samples arrive.
func (v *processHealth) needsSample(rules api.WatchRules) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.predictionLocked(rules)
	if rules.AutoMemory && v.baseline == 0 {
		p.Window = max(p.Window, policy.GrowthWindow)
		if limit := policy.GrowthLimit(v.samples); !p.LimitIsHard || limit < p.MemoryLimitBytes {
			p.MemoryLimitBytes = limit
		}
	}
	return p.NeedsMoreSamples(v.samples, process.DefaultSampleEvery)
}

// isEstimated reports whether the memory of the newest sample is estimated. It must be measured before it decides about
// the incarnation.
func (v *processHealth) isEstimated() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.estimated
}

// predictionLocked predicts the lower of the two limits of memory.
func (v *processHealth) predictionLocked(rules api.WatchRules) policy.Prediction {
	p := policy.Prediction{Window: rules.Window, Horizon: rules.Horizon.D(), MemoryLimitBytes: v.maxMemoryLocked(rules)}
	if hard := rules.MemoryLimitBytes; hard > 0 && (p.MemoryLimitBytes == 0 || hard < p.MemoryLimitBytes) {
		p.MemoryLimitBytes, p.LimitIsHard = hard, true
	}
	return p
}

// assessment returns the assessment of the newest sample; nil before the first.
func (v *processHealth) assessment(sp *spec.Spec) *api.Assessment {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.latest == nil {
		return nil
	}
	maxMemory := sp.Rotation.MaxMemory
	rules := api.WatchRules{MaxMemoryBytes: max(0, int64(maxMemory)), AutoMemory: maxMemory == spec.Auto,
		MemoryLimitBytes: int64(sp.Limits.Memory)}
	if sp.Prediction.Enabled {
		rules.Window = sp.Prediction.Window
	}
	forecast := v.predictionLocked(rules).Forecast(v.samples)
	return &api.Assessment{
		Grade: string(v.latest.Grade), Score: v.latest.Score, Warnings: v.latest.Warnings,
		BaselineBytes: v.baseline, MaxMemoryBytes: v.maxMemoryLocked(rules), CallsPerMinute: v.callsPerMin,
		Watch: forecast.Watch, FailsInMS: forecast.FailsIn.Milliseconds(),
	}
}

// Score returns the health score of an incarnation, 0 to 100, by its newest sample; 100 before the first.
func (h *Host) Score(worker string, incarnation int64) float64 {
	if a := h.Assessment(worker, incarnation); a != nil {
		return a.Score
	}
	return 100
}

// Assessment returns the assessment of an incarnation by its newest sample, with its forecast; nil before the first.
func (h *Host) Assessment(worker string, incarnation int64) *api.Assessment {
	p, _ := h.Processes.Get(worker, incarnation)
	if m := h.monitors.of(p); m != nil {
		return m.assessment()
	}
	return nil
}

func (m *monitor) assessment() *api.Assessment { return m.health.assessment(m.p.SharedSpec()) }
