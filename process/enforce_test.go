package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

func TestTheSamplerJudges(t *testing.T) {
	at := time.Unix(1000, 0)
	look := func(s int, cpu time.Duration) treeUse {
		return treeUse{at: at.Add(time.Duration(s) * time.Second), cpu: cpu, memory: 10, processes: 1}
	}
	t.Run("memory and processes: over is replaced, half over again is killed", func(t *testing.T) {
		for _, c := range []struct {
			use  treeUse
			want verdict
		}{
			{treeUse{memory: 100, processes: 10}, within},
			{treeUse{memory: 101, processes: 1}, recycle},
			{treeUse{memory: 149, processes: 1}, recycle},
			{treeUse{memory: 150, processes: 1}, kill},
			{treeUse{memory: 1, processes: 11}, recycle},
			{treeUse{memory: 101, processes: 15}, kill},
		} {
			got, excess := sampledLimits{memory: 100, processes: 10}.judge(c.use, &cpuWatch{})
			require.Equal(t, c.want, got, c.use)
			require.Equal(t, c.want != within, excess.Reason != "")
		}
	})
	t.Run("CPU counts once it lasts", func(t *testing.T) {
		w, limits := &cpuWatch{}, sampledLimits{cpu: 1}
		for s := range 30 {
			got, _ := limits.judge(look(s, time.Duration(2*s)*time.Second), w)
			require.Equal(t, within, got, s)
		}
		got, excess := limits.judge(look(30, 60*time.Second), w)
		require.Equal(t, recycle, got)
		require.Equal(t, "its process tree has used more than 1 cores for 30s, 2.00 at last (limits.cpu)", excess.Reason)
	})
	t.Run("a pause of CPU use starts the count anew", func(t *testing.T) {
		w, limits := &cpuWatch{}, sampledLimits{cpu: 1}
		cpu := time.Duration(0)
		for s := range 100 {
			if s%20 != 0 {
				cpu += 2 * time.Second
			}
			got, _ := limits.judge(look(s, cpu), w)
			require.Equal(t, within, got, s)
		}
	})
	t.Run("at its limit is within it", func(t *testing.T) {
		w, limits := &cpuWatch{}, sampledLimits{cpu: 1}
		for s := range 100 {
			got, _ := limits.judge(look(s, time.Duration(s)*1040*time.Millisecond), w)
			require.Equal(t, within, got, s)
		}
	})
}

func TestWorkersShareTheCoresInTurn(t *testing.T) {
	host := []int{0, 1, 2, 3}
	of := func(l spec.Limits, worker string) []int { return coresOf(l, worker, host) }
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
	require.Empty(t, coresOf(each, "p/0", nil), "the host does not say which it has")
	require.Len(t, of(each, "p/"+strings.Repeat("9", 30)), 1)
}

func TestLimitsAreHeldByTheStrongestMeansOfTheHost(t *testing.T) {
	all := spec.Limits{
		Memory: 1 << 30, CPU: 1.5, OpenFiles: 10, Processes: 5, CPUTime: spec.Duration(time.Minute), CPUAffinity: []int{1}, CPUAffinityEach: 1, Nice: 1, OOMScoreAdj: 1,
		CallsPerMinute: 60,
	}
	linux := hostMeans{rlimits: true, affinity: true, oomScoreAdj: true}
	delegated := linux
	delegated.cgroup = map[string]bool{"memory": true, "pids": true}
	mac := hostMeans{rlimits: true, unsupported: "macOS"}
	plan := func(l spec.Limits, host hostMeans) (plannedLimits, error) {
		sp := spec.Default()
		sp.Limits = l
		return planLimits(&sp, "p/0", host)
	}
	planned, err := plan(all, linux)
	require.NoError(t, err)
	require.Equal(t, map[string]Means{
		"memory": BySampler, "cpu": BySampler, "processes": BySampler, "open_files": ByRlimit, "cpu_time": ByRlimit,
		"cpu_affinity": ByScheduler, "cpu_affinity_each": ByScheduler, "nice": ByScheduler, "oom_score_adj": ByKernel, "calls_per_minute": ByGateway,
	}, planned.means)
	require.False(t, planned.useCgroup)

	planned, err = plan(all, delegated)
	require.NoError(t, err)
	require.Equal(t, []Means{ByCgroup, BySampler, ByCgroup}, []Means{planned.means["memory"], planned.means["cpu"], planned.means["processes"]})
	require.True(t, planned.useCgroup)

	for key, l := range map[string]spec.Limits{"cpu_affinity": {CPUAffinity: []int{0}}, "cpu_affinity_each": {CPUAffinityEach: 1}, "oom_score_adj": {OOMScoreAdj: 1}} {
		_, err := plan(l, mac)
		require.ErrorContains(t, err, "limits."+key+" cannot be held on macOS: remove it, or run the pool on Linux")
	}
	planned, err = plan(spec.Limits{OpenFiles: 5, Memory: 5}, hostMeans{})
	require.NoError(t, err)
	require.Equal(t, map[string]Means{"open_files": ByNothing, "memory": BySampler}, planned.means)
}
