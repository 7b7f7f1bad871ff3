package pool

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// figureStep is how long figures are counted apart: the last minute is made of such steps.
	figureStep   = 10 * time.Second
	minuteSteps  = int64(time.Minute / figureStep)
	hourSteps    = api.FigureMinutes * minuteSteps
	maxMethods   = 32  // that a pool's figures know by name, in each half of the hour
	maxMethodLen = 100 // bytes of their names
)

// figures are what happened to the calls of a pool on this host in the last hour. Their lock is held for no longer than
// counting takes, and nothing else is locked under it. Counting a call does not allocate but for the first of a step or
// of a method.
type figures struct {
	mu    sync.Mutex
	began time.Time // of step 0
	step  int64     // the open one
	openStep
	steps [minuteSteps]*api.Figures       // the last ones before it, by number; nil without anything to count
	hour  [api.FigureMinutes]*api.Figures // the minutes before the open one, by number
	// methods are those of the present half of an hour and of the one before.
	methods [2]map[string]*api.MethodFigures
}

// openStep are the figures of the open step.
type openStep struct {
	counted          api.Figures
	waiting, serving [api.TimeBuckets]uint32
}

func newFigures(now time.Time) *figures {
	return &figures{began: now, methods: [2]map[string]*api.MethodFigures{{}, {}}}
}

// lockAt locks the figures and closes the steps that have ended.
func (f *figures) lockAt(now time.Time) {
	f.mu.Lock()
	step := int64(now.Sub(f.began) / figureStep)
	for f.step = max(f.step, step-2*hourSteps); f.step < step; { // what is older is overwritten
		f.steps[f.step%minuteSteps] = f.read()
		f.openStep = openStep{}
		if f.step++; f.step%minuteSteps == 0 {
			f.hour[(f.step/minuteSteps-1)%api.FigureMinutes] = total(f.steps[:]...)
		}
		if f.step%(hourSteps/2) == 0 {
			f.methods = [2]map[string]*api.MethodFigures{{}, f.methods[0]}
		}
	}
}

// total adds up steps; nil if nothing was counted in them.
func total(steps ...*api.Figures) (all *api.Figures) {
	for _, one := range steps {
		if one != nil && all == nil {
			all = &api.Figures{}
		}
		if one != nil {
			all.Add(*one, false)
		}
	}
	return all
}

// read is what was counted, nil for nothing.
func (o *openStep) read() *api.Figures {
	if o.counted.Calls == 0 && o.counted.Queue == 0 && o.counted.Processes == nil {
		return nil
	}
	read := o.counted
	read.Waiting, read.Serving = timesOf(&o.waiting), timesOf(&o.serving)
	return &read
}

func timesOf(counts *[api.TimeBuckets]uint32) api.Times {
	times := make(api.Times, 0, api.TimeBuckets)
	for i, n := range counts {
		if n > 0 {
			times = append(times, [2]uint32{api.TimeBucketFrom(i), n})
		}
	}
	return slices.Clone(times)
}

// count counts a call that failed with a code or "", after a worker had it for some time; less than 0 if none has seen
// it.
func (f *figures) count(method string, failed api.Code, waited, took time.Duration, now time.Time) {
	f.lockAt(now)
	defer f.mu.Unlock()
	f.counted.Calls++
	f.waiting[api.TimeBucket(waited)]++
	if failed != "" {
		f.counted.Errors.Add(string(failed), 1)
	}
	if took < 0 {
		return
	}
	f.serving[api.TimeBucket(took)]++
	f.counted.ServingUS += took.Microseconds()
	m := f.methodLocked(method[:min(len(method), maxMethodLen)], failed)
	m.Calls++
	m.TimeUS += took.Microseconds()
	if failed != "" {
		m.Errors++
	}
}

// methodLocked is the count of a method. Names that a client makes up do not keep a real one out.
func (f *figures) methodLocked(method string, failed api.Code) *api.MethodFigures {
	known := f.methods[0]
	if known[method] == nil && (len(known) >= maxMethods || failed == api.CodeMethodNotFound) {
		method = api.OtherMethods
	}
	m := known[method]
	if m == nil {
		m = &api.MethodFigures{Method: strings.ToValidUTF8(method, "")}
		known[strings.Clone(method)] = m // of a request that would stay in memory with it
	}
	return m
}

// update counts something else in the open step.
func (f *figures) update(now time.Time, change func(*api.Figures)) {
	f.lockAt(now)
	defer f.mu.Unlock()
	change(&f.counted)
}

// lastMinute is the last minute with the open step; nil if nothing was counted in it.
func (f *figures) lastMinute(now time.Time) *api.Figures {
	f.lockAt(now)
	defer f.mu.Unlock()
	all := total(append(f.steps[:], f.read())...)
	if all != nil {
		all.Seconds = float32((now.Sub(f.began) - time.Duration(max(0, f.step-minuteSteps))*figureStep).Seconds())
	}
	return all
}

// lastHour are the minutes of the last hour, oldest first, with those in which nothing happened, and the calls of each
// method in the last half of an hour to hour.
func (f *figures) lastHour(now time.Time) (minutes []api.Figures, methods []api.MethodFigures) {
	f.lockAt(now)
	defer f.mu.Unlock()
	open := f.step / minuteSteps
	for number := max(0, open-api.FigureMinutes+1); number <= open; number++ {
		counted := f.hour[number%api.FigureMinutes]
		if begun := f.step % minuteSteps; number == open && begun == 0 {
			break // a few seconds do not say what a minute is like
		} else if number == open {
			counted = total(append(f.steps[:begun:begun], f.read())...)
		}
		one := api.Figures{}
		if counted != nil {
			one = *counted
		}
		age := now.Sub(f.began) - time.Duration(number)*time.Minute
		one.AgeMS, one.Seconds = int32(age.Milliseconds()), float32(min(age, time.Minute).Seconds())
		minutes = append(minutes, one)
	}
	for _, half := range f.methods {
		for _, m := range half {
			methods = append(methods, *m)
		}
	}
	return minutes, api.AddMethods(methods...)
}
