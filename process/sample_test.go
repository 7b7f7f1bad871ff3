package process

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMeter(t *testing.T) {
	start := time.Unix(1000, 0)
	m := meter{cpuAt: start}
	of := func(used map[int]usage) func(identity) usage { return func(id identity) usage { return used[id.PID] } }
	member := func(pid int, cpu time.Duration) *row {
		return &row{identity: identity{PID: pid, Start: 1}, cpu: cpu, threads: 2, rss: 100}
	}

	first := m.measure(start.Add(time.Second), []*row{member(1, 500*time.Millisecond), member(2, 0)}, of(map[int]usage{
		1: {rss: 70, pss: 50, openFiles: 3, read: 10, wrote: 20}, 2: {pss: 5, openFiles: 4, read: 1, wrote: 2},
	}))
	require.Equal(t, Sample{
		At: start.Add(time.Second), RSSBytes: 170, PSSBytes: 55, CPUPercent: 50, OpenFiles: 7, Threads: 4, Children: 1, ReadBytes: 11, WriteBytes: 22,
	}, first)

	second := m.measure(start.Add(3*time.Second), []*row{member(1, 4500*time.Millisecond)}, of(map[int]usage{1: {read: 15, wrote: 20}}))
	require.InDelta(t, 200, second.CPUPercent, 0.01, "two cores for two seconds")
	require.Zero(t, second.Children)
	require.Zero(t, second.PSSBytes, "a part must not look like the whole")
	require.Equal(t, int64(16), second.ReadBytes, "what an ended member read still counts")
	require.Equal(t, int64(22), second.WriteBytes)

	third := m.measure(start.Add(4*time.Second), []*row{member(1, time.Second)}, of(nil))
	require.Zero(t, third.CPUPercent, "never negative")
	require.Equal(t, second.ReadBytes, third.ReadBytes, "totals never fall")
}

func TestOverTooShortATimeNoUseOfCPUIsTold(t *testing.T) {
	start := time.Unix(1000, 0)
	m := meter{cpuAt: start, cpu: 50 * time.Millisecond} // that much the launcher had used
	at := func(after, cpu time.Duration) float64 {
		members := []*row{{identity: identity{PID: 1, Start: 1}, cpu: cpu}}
		return m.measure(start.Add(after), members, func(identity) usage { return usage{} }).CPUPercent
	}
	require.Zero(t, at(5*time.Millisecond, 60*time.Millisecond), "a tick is not two cores")
	require.InDelta(t, 40, at(500*time.Millisecond, 250*time.Millisecond), 0.01, "all that the program has used since it began")
	require.InDelta(t, 40, at(505*time.Millisecond, 260*time.Millisecond), 0.01)
	require.InDelta(t, 100, at(900*time.Millisecond, 650*time.Millisecond), 0.01, "nothing is lost in between")
}

func TestASampleCoversTheWholeTree(t *testing.T) {
	p := begin(t, open(t), python(t))
	alone, err := p.Sample(t.Context())
	require.NoError(t, err)
	require.Zero(t, alone.Children)
	require.Positive(t, alone.PSSBytes)
	require.Positive(t, alone.OpenFiles)
	require.Positive(t, alone.Threads)
	require.Equal(t, alone, p.LatestSample())

	call(t, p, "fork_holder", "null")
	call(t, p, "hold", "64")
	call(t, p, "burn", "0.2")
	eventually(t, func() bool {
		sample, err := p.Sample(t.Context())
		return err == nil && sample.Children == 1 && sample.RSSBytes > alone.RSSBytes+(64<<20) && sample.CPUPercent > 0
	}, "a child in a session of its own, the memory and the time must show")
}

func TestProcessesAreSampledUnasked(t *testing.T) {
	p := begin(t, open(t, func(c *Config) { c.SampleEvery = 10 * time.Millisecond }), runs("sleep", "1000"))
	eventually(t, func() bool { return p.LatestSample().RSSBytes > 0 }, "no sample")
}

func TestWhatHasEndedCannotBeSampled(t *testing.T) {
	p := begin(t, open(t), runs("sleep", "1000"))
	_, err := p.Stop(t.Context(), 0)
	require.NoError(t, err)
	_, err = p.Sample(t.Context())
	require.ErrorIs(t, err, errNothingToSample)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Sample(ended)
	require.ErrorIs(t, err, context.Canceled)
}

func TestSamplesAtTheSameTimeShareOneScan(t *testing.T) {
	var shared snapshots
	tables := make([]*table, 20)
	var all sync.WaitGroup
	for i := range tables {
		all.Go(func() { tables[i], _ = shared.recent(time.Hour) })
	}
	all.Wait()
	for _, got := range tables {
		require.Same(t, tables[0], got)
	}
	require.NotNil(t, tables[0].rows[os.Getpid()])
	fresh, err := shared.recent(0)
	require.NoError(t, err)
	require.NotSame(t, tables[0], fresh)
}
