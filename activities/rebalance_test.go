package activities_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// idleDataPlane is a data plane that has carried no call.
type idleDataPlane struct{}

func (idleDataPlane) Endpoint() string                      { return "unix:/nowhere" }
func (idleDataPlane) Lease(string, int64) *api.Lease        { return nil }
func (idleDataPlane) Claim(string, int64)                   {}
func (idleDataPlane) NotifyAt(string, int64, int64, func()) {}
func (idleDataPlane) SetHealth(string, int64, string)       {}
func (idleDataPlane) Drain(context.Context, string, int64) api.DrainResult {
	return api.DrainResult{}
}
func (idleDataPlane) Resume(*process.Process, *api.Suspension, *api.Lease) {}
func (idleDataPlane) Reset(context.Context, string, int64, string) (api.Usage, error) {
	return api.Usage{}, nil
}
func (idleDataPlane) Suspend(context.Context, api.SuspendRequest) api.SuspendResult {
	return api.SuspendResult{}
}
func (idleDataPlane) EndSuspension(context.Context, api.ResumeRequest) api.ResumeResult {
	return api.ResumeResult{}
}
func (idleDataPlane) Suspension(string, int64) *api.Suspension { return nil }

func TestABudgetIsSplitExactlyAndAppliedAsLimits(t *testing.T) {
	h, first := newHost(t, withoutProtocol, "sleep", "1000")
	second, err := h.Processes.Start(t.Context(), process.Launch{Worker: "p/1", Incarnation: 1, Spec: first.Spec()})
	require.NoError(t, err)
	request := api.RebalanceRequest{
		Resources: spec.Resources{Allocation: spec.AllocationEqual, MemoryBudget: 1 << 30, CPUBudget: 1.5},
		Processes: []api.Process{worker, {Worker: "p/1", Incarnation: 1}, unknown},
	}
	only, err := h.Rebalance(t.Context(), request)
	require.NoError(t, err)
	require.Empty(t, only.Problem)
	require.Len(t, only.Shares, 2)
	require.Zero(t, first.Limits().Memory, "it was only asked")

	request.Apply = true
	result, err := h.Rebalance(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, result.Shares, 2)
	var memory int64
	var cpu float64
	for _, share := range result.Shares {
		require.True(t, share.Applied)
		memory, cpu = memory+share.MemoryBytes, cpu+share.CPUCores
	}
	require.EqualValues(t, 1<<30, memory)
	require.InDelta(t, 1.5, cpu, 1e-9)
	require.EqualValues(t, 512<<20, second.Limits().Memory)
	require.InDelta(t, 0.75, second.Limits().CPU, 1e-9)
}

func TestABudgetBelowTheUsageChangesNothingAndReportsAProblem(t *testing.T) {
	h, p := newHost(t, withoutProtocol, "sleep", "1000")
	result, err := h.Rebalance(t.Context(), api.RebalanceRequest{
		Resources: spec.Resources{Allocation: spec.AllocationAdaptive, MemoryBudget: 1 << 20, CPUBudget: 1},
		Processes: []api.Process{worker}, Apply: true,
	})
	require.NoError(t, err)
	require.Contains(t, result.Problem, "resources.memory_budget")
	require.Empty(t, result.Shares)
	require.Zero(t, p.Limits().Memory)
}

func TestWithoutABudgetTheHostsMemoryIsSplitUpToTheLimits(t *testing.T) {
	h, _ := newHost(t, func(s *spec.Spec) { withoutProtocol(s); s.Limits.Memory = 2 << 30 }, "sleep", "1000")
	h.MemoryTotal = func() (int64, error) { return 8 << 30, nil }
	result, err := h.Rebalance(t.Context(), api.RebalanceRequest{
		Resources: spec.Resources{Allocation: spec.AllocationWeighted}, Processes: []api.Process{worker},
	})
	require.NoError(t, err)
	require.Empty(t, result.Problem)
	require.Len(t, result.Shares, 1)
	require.EqualValues(t, 2<<30, result.Shares[0].MemoryBytes)
}

func TestAShareThatAHostCannotApplyIsLogged(t *testing.T) {
	h, p := newHost(t, withoutProtocol, "sleep", "1000")
	var log strings.Builder
	h.Logger = slog.New(slog.NewTextHandler(&log, nil))
	h.MemoryTotal = func() (int64, error) {
		p.Kill("meanwhile")
		<-p.Done()
		return 8 << 30, nil
	}
	result, err := h.Rebalance(t.Context(), api.RebalanceRequest{
		Resources: spec.Resources{Allocation: spec.AllocationEqual}, Processes: []api.Process{worker}, Apply: true,
	})
	require.NoError(t, err)
	require.False(t, result.Shares[0].Applied)
	require.Contains(t, log.String(), `level=WARN msg="share of the host's budget not applied" worker=p/0`)
}
