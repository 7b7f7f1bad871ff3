package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// addSamples adds one sample of each size in MB every pause, with requestsEach more requests, until a replacement is
// due.
func addSamples(v *processHealth, rules api.WatchRules, health spec.Health, pause time.Duration, requestsEach int64,
	mb ...float64) (at int, cause api.Cause, reason string) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	requests := int64(0)
	for i, m := range mb {
		age := time.Duration(i) * pause
		requests += requestsEach
		v.add(api.Sample{At: begin.Add(age), MemoryBytes: int64(m * 1e6)}, served{requests: requests, calls: requests},
			health)
		if cause, reason := v.replacement(rules, requests, age); cause != "" {
			return i, cause, reason
		}
	}
	return -1, "", ""
}

// fixedBands grades small programs.
func fixedBands() spec.Health {
	health := spec.Default().Health
	health.MemoryBands = spec.Bands{100, 250, 500, 750}
	return health
}

// linear returns a series with a constant step.
func linear(from, step float64, n int) []float64 {
	series := make([]float64, n)
	for i := range series {
		series[i] = from + float64(i)*step
	}
	return series
}

func TestAWatchFindsTheFirstReasonToReplace(t *testing.T) {
	const pause = 10 * time.Second
	predict := api.WatchRules{Window: 10, Horizon: spec.Default().Prediction.Horizon, MemoryLimitBytes: 512e6}
	for name, c := range map[string]struct {
		rules    api.WatchRules
		requests int64
		mb       []float64
		at       int
		cause    api.Cause
		reason   string
	}{
		"nothing without rules": {api.WatchRules{}, 1000, linear(1000, 1000, 20), -1, "", ""},
		"requests": {api.WatchRules{RequestLimit: 995}, 100, linear(20, 0, 20), 9,
			api.CauseRequests, "served 1000 requests (limit 995, rotation.max_requests)"},
		"memory": {api.WatchRules{MaxMemoryBytes: 300e6}, 0, []float64{20, 20, 299, 301},
			3, api.CauseMemory, "301 MB"},
		"a failing worker at once": {api.WatchRules{Grade: true}, 0, []float64{20, 20, 800}, 2,
			api.CauseGrade, "failing"},
		"a critical worker after three samples": {api.WatchRules{Grade: true}, 0, []float64{20, 600, 600, 600}, 3,
			api.CauseGrade, "critical in 3 consecutive samples"},
		"a degraded worker after five samples": {api.WatchRules{Grade: true}, 0, []float64{20, 300, 300, 300, 300, 300},
			5, api.CauseGrade, "degraded or worse in 5 consecutive samples"},
		"a grade counts from a certain age on": {api.WatchRules{Grade: true, GradeAfter: spec.Duration(time.Minute)}, 0,
			linear(800, 0, 20), 6, api.CauseGrade, "failing"},
		"a leak before it has reached the limit": {predict, 0, linear(20, 10, 60), 9, api.CausePrediction,
			"Replacing worker before it fails"},
		"a worker that only warms up is left alone": {predict, 0, append(linear(20, 60, 2), linear(80, 0, 40)...), -1, "",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			at, cause, reason := addSamples(&processHealth{}, c.rules, fixedBands(), pause, c.requests, c.mb...)
			require.Equal(t, c.cause, cause, reason)
			require.Equal(t, c.at, at, reason)
			require.Contains(t, reason, c.reason)
		})
	}
}

func TestAWorkerIsJudgedByItsOwnBaseline(t *testing.T) {
	rules := api.WatchRules{
		AutoMemory: true, Grade: true, Window: 10, Horizon: spec.Default().Prediction.Horizon,
	}
	hard := rules
	hard.MemoryLimitBytes = 600e6
	level := linear(800, 0, 30)
	for name, c := range map[string]struct {
		rules    api.WatchRules
		requests int64 // each pause
		pause    time.Duration
		mb       []float64
		cause    api.Cause
		reason   string
	}{
		"a program that needs 800 MB": {rules, 1, 10 * time.Second, linear(800, 0, 400), "", ""},
		"one that loads them in its first call": {rules, 1, 10 * time.Second,
			append([]float64{30}, linear(800, 0, 100)...), "", ""},
		"one that waits for calls": {rules, 0, 10 * time.Second,
			append(linear(30, 0, 60), linear(800, 0, 60)...), "", ""},
		"one that has tripled": {rules, 1, 10 * time.Second, append(level[:15:15], 2500),
			api.CauseMemory, `uses 2500 MB of memory (limit 2400 MB, rotation.max_memory = "auto", baseline 800 MB)`},
		"one that has doubled and stays there": {rules, 1, 10 * time.Second,
			append(level[:15:15], linear(1700, 0, 5)...), api.CauseGrade,
			`good is below 1600 (health.memory_bands = "auto", baseline 800 MB)`},
		"one whose memory goes up and down": {rules, 1, 10 * time.Second,
			append(level[:15:15], 1000, 1500, 900, 1400, 1000, 1500, 800, 1500, 900, 1000, 1300), "", ""},
		"a leak of 20 MB a second, sampled quickly": {rules, 40, time.Second, linear(30, 20, 60), api.CauseMemory,
			`without levelling off (limit 537 MB, rotation.max_memory = "auto")`},
		"a leak of 100 MB a minute": {rules, 1, 10 * time.Second, linear(30, 100.0/6, 400),
			api.CausePrediction, "would reach 537 MB (rotation.max_memory)"},
		"a leak before a limit of the spec": {hard, 1, time.Second, linear(30, 20, 60), api.CausePrediction,
			"would reach 600 MB (limits.memory)"},
	} {
		t.Run(name, func(t *testing.T) {
			at, cause, reason := addSamples(&processHealth{}, c.rules, spec.Default().Health, c.pause, c.requests, c.mb...)
			require.Equal(t, c.cause, cause, "sample %d: %s", at, reason)
			require.Contains(t, reason, c.reason)
		})
	}
	require.True(t, func() bool { // at the second sample, long before a baseline is known
		v := &processHealth{}
		addSamples(v, api.WatchRules{}, spec.Default().Health, 10*time.Second, 1, 30, 230)
		return v.needsSample(rules)
	}(), "a leak is sampled more often")
}

func TestCallsAreGradedPerMinute(t *testing.T) {
	health := fixedBands()
	health.CallsBands = []float64{10, 30, 60, 100}
	v := &processHealth{}
	// 90 a minute
	_, cause, reason := addSamples(v, api.WatchRules{Grade: true}, health, 10*time.Second, 15, linear(20, 0, 4)...)
	require.Equal(t, api.CauseGrade, cause)
	require.Contains(t, reason, "calls are 90 per minute")
	require.Equal(t, "critical", v.assessment(&spec.Spec{}).Grade)
}

func TestAFewCallsBetweenTwoQuickSamplesAreNoRate(t *testing.T) {
	v, start := &processHealth{}, time.Unix(100, 0)
	v.add(api.Sample{At: start}, served{}, fixedBands())
	v.add(api.Sample{At: start.Add(1500 * time.Microsecond)}, served{requests: 4, calls: 4}, fixedBands())
	require.InDelta(t, 24, v.callsPerMin, 0.001, "4 calls in less than the 10 s between two samples")
	v.add(api.Sample{At: start.Add(20 * time.Second)}, served{requests: 4, calls: 4}, fixedBands())
	require.InDelta(t, 12, v.callsPerMin, 0.001)
}

func TestAnAssessmentShowsAFailureBeyondTheHorizon(t *testing.T) {
	sp := spec.Default()
	sp.Rotation.MaxMemory = 600e6
	v := &processHealth{}
	addSamples(v, api.WatchRules{}, sp.Health, 30*time.Second, 1, linear(100, 2, 12)...)
	a := v.assessment(&sp)
	require.Contains(t, a.Watch, "Watch closely: memory grows by 4.0 MB per minute")
	require.InDelta(t, (600-122)/4.0*60_000, a.FailsInMS, 1000)
	sp.Prediction.Enabled = false
	require.Empty(t, v.assessment(&sp).Watch)
	require.Zero(t, v.assessment(&sp).FailsInMS)
}

func TestTheSameSampleCountsOnce(t *testing.T) {
	v := &processHealth{}
	for range 10 {
		v.add(api.Sample{At: time.Unix(100, 0), MemoryBytes: 600e6}, served{}, fixedBands())
	}
	cause, _ := v.replacement(api.WatchRules{Grade: true}, 0, time.Hour)
	require.Empty(t, cause)
}

func TestTheSamplesOfALongUptimeAreBounded(t *testing.T) {
	v := &processHealth{}
	addSamples(v, api.WatchRules{}, spec.Default().Health, time.Second, 1, linear(20, 0, 5000)...)
	require.Len(t, v.samples, maxSamples)
	require.LessOrEqual(t, len(v.callCounts), 62)
}

func TestMoreSamplesAreTakenWhileMemoryApproachesItsLimit(t *testing.T) {
	rules := api.WatchRules{Window: 10, MemoryLimitBytes: 512e6}
	for name, c := range map[string]struct {
		mb   []float64
		want bool
	}{
		"one sample":                {[]float64{20}, false},
		"20 MB a second":            {[]float64{20, 220}, true},
		"a megabyte in ten seconds": {[]float64{20, 21}, false},
		"a steady one near it":      {[]float64{500, 500}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &processHealth{}
			addSamples(v, api.WatchRules{}, spec.Default().Health, 10*time.Second, 0, c.mb...)
			require.Equal(t, c.want, v.needsSample(rules))
		})
	}
}

func TestCallsPerMinuteAreThoseThatTheProgramCountsOnceItDoes(t *testing.T) {
	v := &processHealth{}
	health := spec.Default().Health
	health.MemoryBands, health.CallsBands = spec.Bands{}, []float64{10, 30, 60, 100}
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	rateAfter := func(age time.Duration, done served) float64 {
		v.add(api.Sample{At: begin.Add(age), MemoryBytes: 1}, done, health)
		return v.assessment(&spec.Spec{}).CallsPerMinute
	}
	require.Zero(t, rateAfter(0, served{}))
	require.InDelta(t, 12, rateAfter(30*time.Second, served{requests: 6, calls: 6}), 1e-9, "6 requests in half a minute")
	require.Equal(t, string(policy.GradeGood), v.assessment(&spec.Spec{}).Grade)
	require.InDelta(t, 80, rateAfter(time.Minute, served{requests: 8, calls: 80, counted: true}), 1e-9,
		"80 calls of its own in the first minute")
	require.Equal(t, string(policy.GradeCritical), v.assessment(&spec.Spec{}).Grade)
	require.Contains(t, v.assessment(&spec.Spec{}).Warnings[0], "calls are 80 per minute")
	require.InDelta(t, 80, rateAfter(2*time.Minute, served{requests: 9, calls: 160, counted: true}), 1e-9)
	require.Zero(t, rateAfter(4*time.Minute, served{requests: 9, calls: 160, counted: true}))
}
