package api

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// FigureMinutes is for how many minutes a gateway keeps the figures of each.
const FigureMinutes = 60

// Figures are what happened to the calls of a pool in some time, at one gateway or, added up, at several.
type Figures struct {
	// AgeMS is how long ago that time began, by the clock of its host, and Seconds how long it was.
	AgeMS   int32   `json:"age_ms,omitempty"`
	Seconds float32 `json:"seconds"`
	// Calls counts those that have ended, and those that no worker has seen; Errors those of them that failed, by code.
	Calls  int64  `json:"calls,omitempty"`
	Errors Counts `json:"errors,omitempty"`
	// Waiting is how long calls were in the queue, 0 included, and Serving how long workers had them, ServingUS in
	// microseconds together.
	Waiting   Times `json:"waiting,omitempty"`
	Serving   Times `json:"serving,omitempty"`
	ServingUS int64 `json:"serving_us,omitempty"`
	// Queue is how many calls and clients waited for a worker, at the most.
	Queue int64 `json:"queue,omitempty"`
	// Processes counts those that were ready and have ended, by outcome, and as Deployed those that came with another spec
	// than the one before.
	Processes Counts `json:"processes,omitempty"`
}

// Deployed is the name of a count of Figures.Processes.
const Deployed = "deployed"

// Counts count by name. A list takes a tenth of the memory of a map.
type Counts []Count

// Count is how often there was what has a name.
type Count struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// Add counts n more of a name.
func (c *Counts) Add(name string, n int64) {
	for i := range *c {
		if (*c)[i].Name == name {
			(*c)[i].Count += n
			return
		}
	}
	*c = append(*c, Count{name, n})
}

// Sum adds all of them up.
func (c Counts) Sum() (all int64) {
	for _, one := range c {
		all += one.Count
	}
	return all
}

func (c Counts) plus(o Counts) Counts {
	all := slices.Clone(c)
	for _, one := range o {
		all.Add(one.Name, one.Count)
	}
	return all
}

// Times count durations: they are the least duration of each bucket in microseconds and how many it has, the shortest
// first. A bucket ends a quarter of the power of two below it later, and after a microsecond if that is less.
type Times [][2]uint32

// TimeBuckets is the number of buckets of Times. The last one has all above half an hour.
const TimeBuckets = 120

// TimeBucket is the bucket of a duration.
func TimeBucket(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	if us < 4 {
		return int(us)
	}
	octave := bits.Len64(us) - 1
	return min(TimeBuckets-1, 4*(octave-1)+int(us>>(octave-2))&3)
}

// TimeBucketFrom is the least duration of a bucket, in microseconds.
func TimeBucketFrom(bucket int) uint32 {
	if bucket < 4 {
		return uint32(bucket)
	}
	return uint32(4+bucket%4) << (bucket/4 - 1)
}

// Quantile is the duration that a share of the durations does not exceed, 0 without any. Those of a bucket count as
// spread evenly.
func (t Times) Quantile(share float64) time.Duration {
	all := 0.0
	for _, b := range t {
		all += float64(b[1])
	}
	rest := share * all
	for _, b := range t {
		if rest -= float64(b[1]); rest <= 0 && b[0] > 0 {
			from := time.Duration(b[0]) * time.Microsecond
			end := time.Duration(TimeBucketFrom(TimeBucket(from)+1)) * time.Microsecond
			return end + time.Duration(rest/float64(max(1, b[1]))*float64(end-from))
		} else if rest <= 0 {
			break // it did not wait at all
		}
	}
	return 0
}

func (t Times) plus(o Times) (all Times) {
	both := slices.Concat(t, o)
	slices.SortFunc(both, func(a, b [2]uint32) int { return cmp.Compare(a[0], b[0]) })
	all = both[:0]
	for _, b := range both {
		if last := len(all) - 1; last >= 0 && all[last][0] == b[0] {
			all[last][1] += b[1]
		} else {
			all = append(all, b)
		}
	}
	return slices.Clone(all)
}

// Add adds the figures of the same time at another gateway, or those of another time at the same one: its length is
// added, and its queue was not at the same time.
func (f *Figures) Add(o Figures, sameTime bool) {
	if sameTime {
		f.Seconds, f.Queue = max(f.Seconds, o.Seconds), f.Queue+o.Queue
	} else {
		f.Seconds, f.Queue = f.Seconds+o.Seconds, max(f.Queue, o.Queue)
	}
	f.Calls, f.ServingUS = f.Calls+o.Calls, f.ServingUS+o.ServingUS
	f.Errors, f.Processes = f.Errors.plus(o.Errors), f.Processes.plus(o.Processes)
	f.Waiting, f.Serving = f.Waiting.plus(o.Waiting), f.Serving.plus(o.Serving)
}

// Rates are Figures for people. Durations are in milliseconds.
type Rates struct {
	Seconds         float32            `json:"seconds"` // how long a time they are about
	CallsPerSecond  float64            `json:"calls_per_second"`
	ErrorsPerSecond map[string]float64 `json:"errors_per_second,omitempty"` // by code
	WaitingMS       Percentiles        `json:"waiting_ms"`
	ServingMS       Percentiles        `json:"serving_ms"`
	Queue           int64              `json:"queue"`     // the most that waited at the same time
	InFlight        float64            `json:"in_flight"` // calls, on average
	// Processes is as in Figures.
	Processes map[string]int64 `json:"processes,omitempty"`
}

// Percentiles are what 50, 95 and 99 of 100 calls do not exceed.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// Rates turns counts into rates.
func (f Figures) Rates() Rates {
	seconds := max(float64(f.Seconds), 1)
	r := Rates{Seconds: f.Seconds, CallsPerSecond: float64(f.Calls) / seconds, Queue: f.Queue,
		InFlight: float64(f.ServingUS) / 1e6 / seconds, WaitingMS: f.Waiting.percentiles(),
		ServingMS: f.Serving.percentiles(), ErrorsPerSecond: map[string]float64{}, Processes: map[string]int64{}}
	for _, e := range f.Errors {
		r.ErrorsPerSecond[e.Name] = float64(e.Count) / seconds
	}
	for _, p := range f.Processes {
		r.Processes[p.Name] = p.Count
	}
	return r
}

func (t Times) percentiles() Percentiles {
	at := func(share float64) float64 { return float64(t.Quantile(share).Microseconds()) / 1000 }
	return Percentiles{at(0.5), at(0.95), at(0.99)}
}

// Failing is how many calls a second failed.
func (r Rates) Failing() (all float64) {
	for _, each := range r.ErrorsPerSecond {
		all += each
	}
	return all
}

// MethodFigures are the calls of a method. OtherMethods is the method of those beyond the first that a gateway knows by
// name, and of those that the worker did not know.
type MethodFigures struct {
	Method string `json:"method"`
	Calls  int64  `json:"calls"`
	Errors int64  `json:"errors"`
	TimeUS int64  `json:"time_us"` // that workers had them, together
}

// OtherMethods is the method of MethodFigures about several.
const OtherMethods = "(other)"

// Mean is how long a call took on average.
func (m MethodFigures) Mean() time.Duration {
	return time.Duration(m.TimeUS/max(1, m.Calls)) * time.Microsecond
}

// AddMethods adds up the figures of each method, sorted by name.
func AddMethods(all ...MethodFigures) (methods []MethodFigures) {
	slices.SortStableFunc(all, func(a, b MethodFigures) int { return cmp.Compare(a.Method, b.Method) })
	for _, m := range all {
		if last := len(methods) - 1; last >= 0 && methods[last].Method == m.Method {
			sum := &methods[last]
			sum.Calls, sum.Errors, sum.TimeUS = sum.Calls+m.Calls, sum.Errors+m.Errors, sum.TimeUS+m.TimeUS
		} else {
			methods = append(methods, m)
		}
	}
	return methods
}
