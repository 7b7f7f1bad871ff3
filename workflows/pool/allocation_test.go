package pool

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func TestASmallChangeOfAShareIsNotReported(t *testing.T) {
	share := api.Share{MemoryBytes: 1000, CPUCores: 1, Limits: map[string]string{"memory": "cgroup"}}
	for name, c := range map[string]struct {
		change func(*api.Share)
		alike  bool
	}{
		"nothing":         {func(*api.Share) {}, true},
		"a little memory": {func(s *api.Share) { s.MemoryBytes = 1050 }, true},
		"much memory":     {func(s *api.Share) { s.MemoryBytes = 1200 }, false},
		"half of the CPU": {func(s *api.Share) { s.CPUCores = 0.5 }, false},
		"other means":     {func(s *api.Share) { s.Limits = map[string]string{"memory": "sampler"} }, false},
	} {
		other := share
		c.change(&other)
		require.Equal(t, c.alike, similar(share, other), name)
	}
}

func TestABudgetIsSharedOutOnEachHostInItsRhythm(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3}, func(t *testing.T, p *fakePool) {
		run := poolOf(3)
		run.Spec.Resources.Allocation = "equal"
		p.rebalanceResult = func(r api.RebalanceRequest) (api.RebalanceResult, error) {
			if len(r.Processes) == 1 {
				return api.RebalanceResult{}, errors.New("it does not want to")
			}
			var result api.RebalanceResult
			for _, one := range r.Processes {
				result.Shares = append(result.Shares, api.Share{Process: one, MemoryBytes: 100, Applied: r.Apply})
			}
			return result, nil
		}
		p.At(4*time.Second, func() { p.placeOn("a", "a", "b") })
		p.At(time.Minute, func() {
			require.Equal(t, 2, p.rebalances())
			s := p.status()
			require.Len(t, s.Shares, 2)
			require.Equal(t, "t/0", s.Shares[0].Worker)
			require.True(t, s.Shares[1].Applied)
			require.Contains(t, s.AllocationProblem, "host b did not split its budget: it does not want to")
		})
		p.At(11*time.Minute, func() { require.Equal(t, 6, p.rebalances(), "every five minutes") })
		p.runUntil(12*time.Minute, run)
		require.ElementsMatch(t, []string{
			`/pools/t/workers/0 resources.rebalanced {"incarnation":1,"memory_bytes":100,"cpu_cores":0}`,
			`/pools/t/workers/1 resources.rebalanced {"incarnation":1,"memory_bytes":100,"cpu_cores":0}`,
		}, p.emitted)
		for i, times := range []int{1, 1, 0} {
			require.Len(t, p.workers[i].timesOf(api.SignalLimitsApplied), times, "worker %d, whose share never changes", i)
		}
	})
}

func TestSharesEndWithTheirWorkersAndWithTheAllocation(t *testing.T) {
	p := newFakePool(t)
	run := poolOf(2)
	run.Spec.Resources.Allocation = "equal"
	p.rebalanceResult = func(r api.RebalanceRequest) (result api.RebalanceResult, err error) {
		for _, one := range r.Processes {
			result.Shares = append(result.Shares, api.Share{Process: one, MemoryBytes: 100})
		}
		return result, nil
	}
	p.At(4*time.Second, p.onOneHost)
	p.At(time.Minute, func() { require.Len(t, p.status().Shares, 2) })
	p.UpdateAt(time.Minute+time.Second, api.UpdateScale, api.ScaleRequest{Size: 1})
	p.At(2*time.Minute, func() { require.Len(t, p.status().Shares, 1, "its worker is gone") })
	without := run.Spec
	without.Resources.Allocation = spec.AllocationNone
	p.UpdateAt(3*time.Minute, api.UpdateApply, api.ApplyRequest{Spec: without})
	p.At(4*time.Minute, func() { require.Empty(t, p.status().Shares) })
	p.runUntil(5*time.Minute, run)
}
