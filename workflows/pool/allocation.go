package pool

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

// firstRebalanceDelay is how long after its first worker serves a pool shares the hosts' budgets out for the first time.
const firstRebalanceDelay = 10 * time.Second

// rebalance has each host share its budget among the pool's workers there (resources), every resources.rebalance.
func (p *pool) rebalance() {
	r := p.Spec.Resources
	if r.Allocation == spec.AllocationNone || r.Allocation == "" || p.rebalancing > 0 {
		return
	}
	hosts := p.servingByHost()
	if len(hosts) == 0 {
		return
	}
	if p.NextRebalance.IsZero() {
		p.NextRebalance = p.now().Add(min(firstRebalanceDelay, r.Rebalance.D()))
	}
	if wait := p.NextRebalance.Sub(p.now()); wait > 0 {
		p.wakeAfter(wait)
		return
	}
	p.NextRebalance = p.now().Add(r.Rebalance.D())
	p.wakeAfter(r.Rebalance.D())
	problems := make(map[string]string, len(hosts))
	for _, host := range workflow.DeterministicKeys(hosts) {
		p.rebalanceHost(host, hosts[host], problems)
	}
}

// servingByHost groups the processes that serve.
func (p *pool) servingByHost() map[string][]api.Process {
	hosts := map[string][]api.Process{}
	for i := range p.Roster {
		if s := p.Roster[i]; s.isServing() && s.Host != "" {
			hosts[s.Host] = append(hosts[s.Host], api.Process{Worker: api.WorkerName(p.PoolStart.Pool, s.Slot), Incarnation: s.Incarnation})
		}
	}
	return hosts
}

// rebalanceHost has one host split its budget. A host that does not answer is asked again next time. What stands in a host's way goes
// into problems, which all hosts that are asked at the same time share.
func (p *pool) rebalanceHost(host string, processes []api.Process, problems map[string]string) {
	ctx := workflow.WithActivityOptions(p.ctx, workflow.ActivityOptions{
		TaskQueue: api.HostQueue(host), ScheduleToStartTimeout: loop.HostTimeout, StartToCloseTimeout: time.Minute, RetryPolicy: loop.Once,
		Summary: "share out the budget of host " + host,
	})
	future := workflow.ExecuteActivity(ctx, api.ActivityRebalance, api.RebalanceRequest{
		Pool: p.PoolStart.Pool, Resources: p.Spec.Resources, Limits: p.Spec.Limits, Processes: processes,
		Apply: p.Spec.Policy.Mode != spec.PolicyObserve,
	})
	p.rebalancing++
	p.selector.AddFuture(future, func(f workflow.Future) {
		p.rebalancing--
		var result api.RebalanceResult
		if err := f.Get(p.ctx, &result); err != nil {
			result.Problem = "host " + host + " did not share its budget out: " + failure.Message(err)
		}
		if result.Problem != "" {
			problems[host] = result.Problem
			workflow.GetLogger(p.ctx).Warn("a budget was not shared out", "pool", p.PoolStart.Pool, "host", host, "problem", result.Problem)
		}
		p.AllocationProblem = joinProblems(problems)
		gone := func(s api.Share) bool {
			return slices.ContainsFunc(processes, func(o api.Process) bool { return o.Worker == s.Worker })
		}
		p.Shares = append(slices.DeleteFunc(p.Shares, gone), result.Shares...)
		p.reportShares(result.Shares)
		slices.SortFunc(p.Shares, func(a, b api.Share) int { return strings.Compare(a.Worker, b.Worker) })
	})
}

// joinProblems joins what stood in the hosts' ways; it says the same whichever host answered first.
func joinProblems(problems map[string]string) string {
	var all []string
	for _, host := range workflow.DeterministicKeys(problems) {
		all = append(all, problems[host])
	}
	return strings.Join(all, "; ")
}

// minShareChange is by which part of it a share has to change before its worker is told: each word costs some nine events.
const minShareChange = 0.1

// reportShares tells workers which limits they have now, where that is news.
func (p *pool) reportShares(shares []api.Share) {
	p.ReportedShares = slices.DeleteFunc(p.ReportedShares, func(old api.Share) bool { // of incarnations that are gone
		return !slices.ContainsFunc(p.Roster, func(s slot) bool {
			return api.WorkerName(p.PoolStart.Pool, s.Slot) == old.Worker && s.Incarnation == old.Incarnation
		})
	})
	for _, share := range shares {
		_, number, err := api.ParseWorkerName(share.Worker)
		i := slices.IndexFunc(p.ReportedShares, func(old api.Share) bool { return old.Process == share.Process })
		if err != nil || !share.Applied || i >= 0 && similar(p.ReportedShares[i], share) {
			continue
		}
		if i >= 0 {
			p.ReportedShares[i] = share
		} else {
			p.ReportedShares = append(p.ReportedShares, share)
		}
		workflow.GetLogger(p.ctx).Info("a share of a host's budget", "worker", share.Worker, "memory_bytes", share.MemoryBytes, "cpu_cores", share.CPUCores)
		p.signalWorker(number, api.SignalLimitsApplied, api.LimitsApplied{
			Incarnation: share.Incarnation, MemoryBytes: share.MemoryBytes, CPUCores: share.CPUCores, Limits: share.Limits,
			Reason: fmt.Sprintf("its %s share of the host's budget is %d MB and %.2f cores", p.Spec.Resources.Allocation, share.MemoryBytes/1_000_000, share.CPUCores),
		}, nil)
	}
}

// similar reports whether two shares differ so little that it is no news.
func similar(a, b api.Share) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) <= minShareChange*math.Max(x, y) }
	return near(float64(a.MemoryBytes), float64(b.MemoryBytes)) && near(a.CPUCores, b.CPUCores) && maps.Equal(a.Limits, b.Limits)
}
