package pool

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestFiguresAreOfTheLastMinuteAndHour(t *testing.T) {
	began := time.Now()
	f := newFigures(began)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	hour := func(s int) (calls []int64) {
		minutes, _ := f.lastHour(at(s))
		for i, one := range minutes {
			require.EqualValues(t, 1000*(s-60*(s/60-(len(minutes)-1-i)-(1-min(1, s%60/10)))), one.AgeMS)
			calls = append(calls, one.Calls)
		}
		return calls
	}
	require.Nil(t, f.lastMinute(at(5)))
	require.Empty(t, hour(5))
	f.count("a", "", 0, 10*time.Millisecond, at(5))
	f.count("a", api.CodeWorkerError, time.Second, 30*time.Millisecond, at(15))
	f.count("", api.CodeQueueFull, 0, -1, at(16))
	last := f.lastMinute(at(20))
	require.EqualValues(t, 3, last.Calls)
	require.Equal(t, api.Counts{{Name: "worker_error", Count: 1}, {Name: "queue_full", Count: 1}}, last.Errors)
	require.EqualValues(t, 20, last.Seconds)
	require.EqualValues(t, 40_000, last.ServingUS)
	require.Len(t, last.Waiting, 2, "a call that did not wait counts, too")
	require.Equal(t, []int64{3}, hour(20))
	observe := func(waiting int64, s int) {
		f.update(at(s), func(f *api.Figures) { f.Queue = max(f.Queue, waiting) })
	}
	for s, waiting := range []int64{3, 9, 4} {
		observe(waiting, 20+s)
	}
	require.EqualValues(t, 9, f.lastMinute(at(31)).Queue, "the most at the same time, not the last")
	require.Zero(t, testing.AllocsPerRun(1000, func() { observe(1, 31) }), "it is on the path of a call that waits")

	f.update(at(65), func(f *api.Figures) { f.Processes.Add(api.Deployed, 1) })
	require.EqualValues(t, 2, f.lastMinute(at(72)).Calls, "the step of the first call is over a minute old")
	require.EqualValues(t, 62, f.lastMinute(at(72)).Seconds)
	require.Nil(t, f.lastMinute(at(150)))
	minutes, methods := f.lastHour(at(150))
	require.Len(t, minutes, 3)
	require.EqualValues(t, 1, minutes[1].Processes.Sum())
	require.Equal(t, []api.MethodFigures{{Method: "a", Calls: 2, Errors: 1, TimeUS: 40_000}}, methods)

	require.EqualValues(t, 3, hour(59*60 + 15)[0])
	require.Len(t, hour(60*60+15), api.FigureMinutes)
	require.NotContains(t, hour(60*60+15), int64(3), "it is over an hour ago")
	f.count("b", "", 0, time.Second, at(90*60))
	_, methods = f.lastHour(at(90 * 60))
	require.Len(t, methods, 1, "a method that is no longer called is forgotten")
	require.Equal(t, make([]int64, api.FigureMinutes), hour(1_000_000))
}

func TestTheMethodsOfFiguresAreBounded(t *testing.T) {
	now := time.Now()
	f := newFigures(now)
	for i := range 3 * maxMethods {
		f.count(fmt.Sprint("guess ", i), api.CodeMethodNotFound, 0, 0, now)
		f.count("\xff", "", 0, 0, now)
	}
	for i := range 3 * maxMethods {
		f.count(fmt.Sprint("real ", i), "", 0, 0, now)
	}
	_, methods := f.lastHour(now)
	require.Len(t, methods, maxMethods)
	require.Equal(t, api.MethodFigures{Method: "", Calls: 3 * maxMethods}, methods[0])
	require.Equal(t, api.MethodFigures{Method: api.OtherMethods, Calls: 5*maxMethods + 2, Errors: 3 * maxMethods},
		methods[1])
}

// The bound is for an agent with 1,000 workers, each of which is a pool of its own that is never idle. A fifth of them
// is measured.
func TestAnHourOfFiguresOfAThousandPoolsFitsInto20MB(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, began := inUse(), time.Now()
	all := make([]*figures, 200)
	for i := range all {
		all[i] = newFigures(began)
		for step := range hourSteps {
			now := began.Add(time.Duration(step) * figureStep)
			for n, name := range names { // times of 1 to 10 ms: a dozen buckets
				took := time.Duration(1+n) * time.Millisecond
				all[i].count(name, "", 0, took, now)
				all[i].count(name, "", 0, took+took/4, now)
			}
			if step%20 == 0 {
				all[i].count("", api.CodeQueueFull, time.Second, -1, now)
			}
		}
	}
	used := 5 * (inUse() - before)
	runtime.KeepAlive(all)
	t.Logf("%.1f MB", float64(used)/1e6)
	require.Less(t, used, int64(20_000_000))
}
