package activities

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func TestTheNewestSamplesOfAWorkerAreKeptOverItsIncarnations(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	var r recentSamples
	require.Equal(t, []api.RecentSamples{}, r.list("p", nil, at(0)))
	for i := range 100 {
		r.add("p/0", at(10*i), recentSample{incarnation: int64(1 + i/50), memory: int64(i), cpu: 1, calls: 2, score: 3})
	}
	r.add("p/10", at(990), recentSample{incarnation: 1, memory: 7})
	r.add("pp/0", at(990), recentSample{incarnation: 1, memory: 8})
	all := r.list("p", nil, at(995))
	require.Len(t, all, 2, "and not those of another pool")
	require.Equal(t, "p/0", all[0].Worker)
	require.True(t, all[0].Valid())
	require.Len(t, all[0].MemoryBytes, api.MaxRecentSamples)
	require.Equal(t, []int64{40, 99}, []int64{all[0].MemoryBytes[0], all[0].MemoryBytes[59]}, "the newest, oldest first")
	require.Equal(t, []int64{1, 1, 2}, []int64{all[0].Incarnation[0], all[0].Incarnation[9], all[0].Incarnation[10]})
	require.Equal(t, []int64{595_000, 5_000}, []int64{all[0].AgeMS[0], all[0].AgeMS[59]})
	require.Equal(t, []float32{1, 2, 3}, []float32{all[0].CPUPercent[5], all[0].CallsPerMinute[5], all[0].Score[5]})
	require.LessOrEqual(t, cap(r.of["p/0"])*40, 4<<10, "bytes of a worker")

	some := r.list("p", []int{10, 3, 10}, at(995))
	require.Len(t, some, 1)
	require.Equal(t, "p/10", some[0].Worker)
	require.Empty(t, r.list("p", []int{}, at(995)))
}

func TestSamplesInQuickSuccessionTakeOnePlace(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var r recentSamples
	for i := range 30 {
		r.add("p/0", begin.Add(time.Duration(i)*time.Second), recentSample{incarnation: 1, memory: int64(i)})
	}
	require.Equal(t, []int64{0, 5, 10, 15, 20, 25, 29}, r.list("p", nil, begin)[0].MemoryBytes,
		"one in five seconds, and the newest")
	r.add("p/0", begin.Add(29500*time.Millisecond), recentSample{incarnation: 2, memory: 1})
	require.Equal(t, []int64{25, 29, 1}, r.list("p", nil, begin)[0].MemoryBytes[5:],
		"the last one of an incarnation stays")
	r.add("p/0", begin.Add(12*time.Second), recentSample{incarnation: 2, memory: 2})
	require.Equal(t, []int64{0, 5, 10, 2}, r.list("p", nil, begin)[0].MemoryBytes,
		"a clock that was set back takes the samples of the future with it")
}

func TestSamplesOfWorkersThatHaveLeftAreForgotten(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var r recentSamples
	for i := range 1000 {
		r.add(fmt.Sprint("p/", i), begin.Add(time.Duration(i)*time.Minute), recentSample{incarnation: 1})
	}
	require.LessOrEqual(t, len(r.of), 22)
	require.Contains(t, r.of, "p/980")
}

func TestASampleIsKeptWithItsAssessment(t *testing.T) {
	v := &processHealth{}
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	sample := api.Sample{MemoryBytes: 20e6, CPUPercent: 12.3456}
	for i := range 3 {
		sample.At = begin.Add(time.Duration(i) * 30 * time.Second)
		require.True(t, v.add(sample, served{requests: int64(10 * i), calls: int64(10 * i)}, spec.Default().Health))
	}
	kept := v.recent(4, sample)
	require.Equal(t, recentSample{incarnation: 4, memory: 20e6, cpu: 12.3, calls: 20, score: float32(v.latest.Score)},
		kept)
}
