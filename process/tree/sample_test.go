package tree

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestMeterSumsTheTree(t *testing.T) {
	start := time.Unix(1000, 0)
	m := Meter{cpuAt: start}
	of := func(used map[int]Usage) func(Identity) Usage {
		return func(id Identity) Usage { return used[id.PID] }
	}
	member := func(pid int, cpu time.Duration) *Entry {
		return &Entry{Identity: Identity{PID: pid, Start: 1}, CPU: cpu, threads: 2, RSS: 100}
	}

	first := m.measureLocked(start.Add(time.Second), []*Entry{member(1, 500*time.Millisecond), member(2, 0)},
		of(map[int]Usage{
			1: {RSS: 70, openFiles: 3, read: 10, wrote: 20}, 2: {openFiles: 4, read: 1, wrote: 2},
		}))
	require.Equal(t, api.Sample{
		At: start.Add(time.Second), RSSBytes: 170, CPUPercent: 50, OpenFiles: 7, Threads: 4, Children: 1, ReadBytes: 11,
		WriteBytes: 22,
	}, first)

	second := m.measureLocked(start.Add(3*time.Second), []*Entry{member(1, 4500*time.Millisecond)},
		of(map[int]Usage{1: {read: 15, wrote: 20}}))
	require.InDelta(t, 200, second.CPUPercent, 0.01, "two cores for two seconds")
	require.Zero(t, second.Children)
	require.Equal(t, int64(16), second.ReadBytes, "what an ended member read still counts")
	require.Equal(t, int64(22), second.WriteBytes)

	third := m.measureLocked(start.Add(4*time.Second), []*Entry{member(1, time.Second)}, of(nil))
	require.Zero(t, third.CPUPercent, "never negative")
	require.Equal(t, second.ReadBytes, third.ReadBytes, "totals never fall")
}

func TestCPUIsNotMeasuredOverLessThan200Milliseconds(t *testing.T) {
	start := time.Unix(1000, 0)
	m := Meter{cpuAt: start, cpu: 50 * time.Millisecond} // that much the launcher had used
	at := func(after, cpu time.Duration) float64 {
		members := []*Entry{{Identity: Identity{PID: 1, Start: 1}, CPU: cpu}}
		return m.measureLocked(start.Add(after), members, func(Identity) Usage { return Usage{} }).CPUPercent
	}
	require.Zero(t, at(5*time.Millisecond, 60*time.Millisecond), "a tick is not two cores")
	require.InDelta(t, 40, at(500*time.Millisecond, 250*time.Millisecond), 0.01,
		"all that the program has used since it began")
	require.InDelta(t, 40, at(505*time.Millisecond, 260*time.Millisecond), 0.01)
	require.InDelta(t, 100, at(900*time.Millisecond, 650*time.Millisecond), 0.01, "nothing is lost in between")
}
