package limits

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

func TestCheckSampledLimits(t *testing.T) {
	at := time.Unix(1000, 0)
	sample := func(s int, cpu time.Duration) TreeUsage {
		return TreeUsage{at: at.Add(time.Duration(s) * time.Second), cpu: cpu, memory: 10, processes: 1}
	}
	t.Run("memory and processes: replace above the limit, kill at 1.5 times the limit", func(t *testing.T) {
		for _, c := range []struct {
			use  TreeUsage
			want Action
		}{
			{TreeUsage{memory: 100, processes: 10}, NoAction},
			{TreeUsage{memory: 101, processes: 1}, Replace},
			{TreeUsage{memory: 149, processes: 1}, Replace},
			{TreeUsage{memory: 150, processes: 1}, Kill},
			{TreeUsage{memory: 1, processes: 11}, Replace},
			{TreeUsage{memory: 101, processes: 15}, Kill},
		} {
			got, violation := Sampled{Memory: 100, Processes: 10}.Check(c.use, &CPUWindow{})
			require.Equal(t, c.want, got, c.use)
			require.Equal(t, c.want != NoAction, violation.Reason != "")
		}
	})
	t.Run("CPU use counts after the grace period", func(t *testing.T) {
		w, limits := &CPUWindow{}, Sampled{CPU: 1}
		for s := range 30 {
			got, _ := limits.Check(sample(s, time.Duration(2*s)*time.Second), w)
			require.Equal(t, NoAction, got, s)
		}
		got, violation := limits.Check(sample(30, 60*time.Second), w)
		require.Equal(t, Replace, got)
		require.Equal(t, "process tree used more than 1 cores for 30s, last 2.00 (limits.cpu)", violation.Reason)
	})
	t.Run("a pause of CPU use resets the grace period", func(t *testing.T) {
		w, limits := &CPUWindow{}, Sampled{CPU: 1}
		cpu := time.Duration(0)
		for s := range 100 {
			if s%20 != 0 {
				cpu += 2 * time.Second
			}
			got, _ := limits.Check(sample(s, cpu), w)
			require.Equal(t, NoAction, got, s)
		}
	})
	t.Run("use within the tolerance is not a violation", func(t *testing.T) {
		w, limits := &CPUWindow{}, Sampled{CPU: 1}
		for s := range 100 {
			got, _ := limits.Check(sample(s, time.Duration(s)*1040*time.Millisecond), w)
			require.Equal(t, NoAction, got, s)
		}
	})
}

func TestAssignCoresSpreadsWorkersEvenly(t *testing.T) {
	host := []int{0, 1, 2, 3}
	of := func(l spec.Limits, worker string) []int { return AssignCores(l, worker, host) }
	each := spec.Limits{CPUAffinityEach: 1}
	seen := map[int]int{}
	for slot := range 8 {
		cores := of(each, fmt.Sprint("p/", slot))
		require.Len(t, cores, 1)
		seen[cores[0]]++
	}
	require.Equal(t, map[int]int{0: 2, 1: 2, 2: 2, 3: 2}, seen)
	firsts := map[int]bool{}
	for _, pool := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		firsts[of(each, pool+"/0")[0]] = true
	}
	require.Greater(t, len(firsts), 1, "the first workers of many pools do not share a core")

	two := spec.Limits{CPUAffinity: []int{1, 2, 3}, CPUAffinityEach: 2}
	seen = map[int]int{}
	for slot := range 3 {
		cores := of(two, fmt.Sprint("p/", slot))
		require.Len(t, cores, 2)
		require.IsIncreasing(t, cores)
		for _, core := range cores {
			seen[core]++
		}
	}
	require.Equal(t, map[int]int{1: 2, 2: 2, 3: 2}, seen)

	require.Empty(t, of(spec.Limits{}, "p/0"))
	require.Empty(t, of(spec.Limits{CPUAffinityEach: 4}, "p/0"), "all there are")
	require.Equal(t, []int{3, 1}, of(spec.Limits{CPUAffinity: []int{3, 1}, CPUAffinityEach: 9}, "p/0"))
	require.Empty(t, AssignCores(each, "p/0", nil), "the host does not say which it has")
	require.Len(t, of(each, "p/"+strings.Repeat("9", 30)), 1)
}

func TestPlanUsesTheStrongestMechanismOfTheHost(t *testing.T) {
	all := spec.Limits{
		Memory: 1 << 30, CPU: 1.5, OpenFiles: 10, Processes: 5, CPUTime: spec.Duration(time.Minute), CPUAffinity: []int{1},
		CPUAffinityEach: 1, Nice: 1, OOMScoreAdj: 1,
		CallsPerMinute: 60,
	}
	linux := Host{Linux: true}
	delegated := linux
	delegated.Controllers = map[string]bool{"memory": true, "pids": true}
	mac := Host{}
	plan := func(l spec.Limits, host Host) (Plan, error) {
		return NewPlan(l, "p/0", host)
	}
	planned, err := plan(all, linux)
	require.NoError(t, err)
	require.Equal(t, map[string]Mechanism{
		"memory": BySampler, "cpu": BySampler, "processes": BySampler, "open_files": ByRlimit, "cpu_time": ByRlimit,
		"cpu_affinity": ByScheduler, "cpu_affinity_each": ByScheduler, "nice": ByScheduler, "oom_score_adj": ByKernel,
		"calls_per_minute": ByGateway,
	}, planned.Mechanisms)

	planned, err = plan(all, delegated)
	require.NoError(t, err)
	require.Equal(t, []Mechanism{ByCgroup, BySampler, ByCgroup},
		[]Mechanism{planned.Mechanisms["memory"], planned.Mechanisms["cpu"], planned.Mechanisms["processes"]})

	for key, l := range map[string]spec.Limits{"cpu_affinity": {CPUAffinity: []int{0}},
		"cpu_affinity_each": {CPUAffinityEach: 1}, "oom_score_adj": {OOMScoreAdj: 1}} {
		_, err := plan(l, mac)
		require.ErrorContains(t, err, "limits."+key+" is not supported on macOS; remove it or run the pool on Linux")
	}
	planned, err = plan(spec.Limits{OpenFiles: 5, Memory: 5}, mac)
	require.NoError(t, err)
	require.Equal(t, map[string]Mechanism{"open_files": ByRlimit, "memory": BySampler}, planned.Mechanisms)
}
