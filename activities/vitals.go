package activities

import (
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/policy/fromspec"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// vitals are what the samples of one incarnation have shown. They outlive the Watch that takes them in, since a worker's workflow
// starts a new one now and then.
type vitals struct {
	process *process.Process

	mu      sync.Mutex
	samples []policy.Observation // oldest first, at most maxSamples
	counts  []count              // of the last minute
	latest  *policy.Assessment
	streak  policy.Streak
	verdict policy.Decision // of the streak, about latest
	callsMS int64           // time in calls, when load was last asked
	askedAt time.Time
}

// count is how many requests an incarnation had served at a time.
type count struct {
	at       time.Time
	requests int64
}

const (
	// maxSamples bounds what prediction looks back on: some windows' experience, and no memory that grows with uptime.
	maxSamples = 120
	// callsOver is what calls a minute are counted over.
	callsOver = time.Minute
)

// take takes one sample in; one that was taken in before changes nothing.
func (v *vitals) take(s process.Sample, requests int64, health spec.Health) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.At.IsZero() || len(v.samples) > 0 && !s.At.After(v.samples[len(v.samples)-1].At) {
		return
	}
	a := fromspec.Grading(health).Assess(policy.Reading{MemoryBytes: s.RSSBytes, CPUPercent: s.CPUPercent, CallsPerMinute: v.rate(s.At, requests)})
	v.latest = &a
	v.streak, v.verdict = v.streak.Next(a)
	v.samples = bounded(append(v.samples, policy.Observation{At: s.At, MemoryBytes: s.RSSBytes, Score: a.Score}), maxSamples)
}

// rate counts calls a minute, over the last one or since the first sample.
func (v *vitals) rate(at time.Time, requests int64) float64 {
	first := 0
	for first < len(v.counts)-1 && at.Sub(v.counts[first].at) > callsOver {
		first++
	}
	v.counts = append(append([]count(nil), v.counts[min(first, len(v.counts)):]...), count{at, requests})
	span := at.Sub(v.counts[0].at)
	if span <= 0 {
		return 0
	}
	return float64(requests-v.counts[0].requests) / span.Minutes()
}

// load is the part of its time, since it was last asked or since it became ready, that went into calls; more than 1 where they overlap.
func (v *vitals) load(callsMS int64, now, ready time.Time) float64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	since := v.askedAt
	if since.IsZero() {
		since = ready
	}
	before := v.callsMS
	v.callsMS, v.askedAt = callsMS, now
	span := now.Sub(since).Milliseconds()
	if span <= 0 {
		return 0
	}
	return float64(callsMS-before) / float64(span)
}

// bounded is the newest most of a list.
func bounded[T any](list []T, most int) []T {
	if excess := len(list) - most; excess > 0 {
		return append(list[:0], list[excess:]...)
	}
	return list
}

// finding says whether, and why, the incarnation should be replaced: for its limits, else its grade, else what is to come.
func (v *vitals) finding(rules api.WatchRules, requests int64, age time.Duration) (api.Cause, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d := (policy.Rotation{MaxRequests: rules.RequestLimit}).Next(policy.Life{Requests: requests}, 0); d.Action == policy.Restart {
		return api.CauseRequests, d.Reason
	}
	if len(v.samples) == 0 {
		return "", ""
	}
	memory := v.samples[len(v.samples)-1].MemoryBytes
	if d := (policy.Rotation{MaxMemoryBytes: rules.MaxMemoryBytes}).Next(policy.Life{MemoryBytes: memory}, 0); d.Action == policy.Restart {
		return api.CauseMemory, d.Reason
	}
	if rules.Grade && v.verdict.Action == policy.Restart && age >= rules.GradeAfter.D() {
		return api.CauseGrade, v.verdict.Reason
	}
	if d := prediction(rules).Next(v.samples); rules.Window > 0 && d.Action == policy.Restart {
		return api.CausePrediction, d.Reason
	}
	return "", ""
}

// pressing reports whether samples are wanted sooner than they come by themselves.
func (v *vitals) pressing(rules api.WatchRules) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := prediction(rules)
	if p.MemoryLimitBytes <= 0 {
		p.MemoryLimitBytes = rules.MaxMemoryBytes
	}
	return p.Pressing(v.samples, process.DefaultSampleEvery)
}

func prediction(rules api.WatchRules) policy.Prediction {
	return policy.Prediction{Window: rules.Window, Horizon: rules.Horizon.D(), MemoryLimitBytes: rules.MemoryLimitBytes}
}

// assessment is the judgement of the newest sample; nil before there is one.
func (v *vitals) assessment() *api.Assessment {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.latest == nil {
		return nil
	}
	return &api.Assessment{Grade: string(v.latest.Grade), Score: v.latest.Score, Warnings: v.latest.Warnings}
}

// register has the vitals of the incarnations that live here. Its zero value is empty and ready.
type register struct {
	mu  sync.Mutex
	all map[api.Process]*vitals
}

// of returns the vitals of a process, made where they are missing. Those of ended ones are dropped then.
func (r *register) of(p *process.Process) *vitals {
	key := api.Process{Worker: p.Worker(), Incarnation: p.Incarnation()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.all[key]; v != nil {
		return v
	}
	if r.all == nil {
		r.all = map[api.Process]*vitals{}
	}
	for old, v := range r.all {
		if ended(v.process) {
			delete(r.all, old)
		}
	}
	v := &vitals{process: p}
	r.all[key] = v
	return v
}

// known returns the vitals of an incarnation, or nil.
func (r *register) known(worker string, incarnation int64) *vitals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[api.Process{Worker: worker, Incarnation: incarnation}]
}
