package workflows

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/spec"
)

// settling is how long after its first worker serves a pool shares the hosts' budgets out for the first time.
const settling = 10 * time.Second

// rebalance has each host share its budget among the pool's workers there (resources), every resources.rebalance.
func (p *pool) rebalance() {
	r := p.Spec.Resources
	if r.Allocation == spec.AllocationNone || r.Allocation == "" || p.sharing > 0 {
		return
	}
	hosts := p.byHost()
	if len(hosts) == 0 {
		return
	}
	if p.NextRebalance.IsZero() {
		p.NextRebalance = p.now().Add(min(settling, r.Rebalance.D()))
	}
	if wait := p.NextRebalance.Sub(p.now()); wait > 0 {
		p.askAgain(wait)
		return
	}
	p.NextRebalance = p.now().Add(r.Rebalance.D())
	p.askAgain(r.Rebalance.D())
	problems := make(map[string]string, len(hosts))
	for _, host := range workflow.DeterministicKeys(hosts) {
		p.shareOut(host, hosts[host], problems)
	}
}

// byHost groups the processes that serve.
func (p *pool) byHost() map[string][]tempool.Process {
	hosts := map[string][]tempool.Process{}
	for i := range p.Roster {
		if s := p.Roster[i]; s.serving() && s.Host != "" {
			hosts[s.Host] = append(hosts[s.Host], tempool.Process{Worker: tempool.WorkerName(p.PoolStart.Pool, s.Slot), Incarnation: s.Incarnation})
		}
	}
	return hosts
}

// shareOut has one host split its budget. A host that does not answer is asked again next time. What stands in a host's way goes
// into problems, which all hosts that are asked at the same time share.
func (p *pool) shareOut(host string, processes []tempool.Process, problems map[string]string) {
	ctx := workflow.WithActivityOptions(p.ctx, workflow.ActivityOptions{
		TaskQueue: tempool.HostQueue(host), ScheduleToStartTimeout: hostPatience, StartToCloseTimeout: time.Minute, RetryPolicy: once,
		Summary: "share out the budget of host " + host,
	})
	future := workflow.ExecuteActivity(ctx, tempool.ActivityRebalance, tempool.RebalanceRequest{
		Pool: p.PoolStart.Pool, Resources: p.Spec.Resources, Limits: p.Spec.Limits, Processes: processes,
		Apply: p.Spec.Policy.Mode != spec.PolicyObserve,
	})
	p.sharing++
	p.ear.addFuture(future, func(f workflow.Future) {
		p.sharing--
		var result tempool.RebalanceResult
		if err := f.Get(p.ctx, &result); err != nil {
			result.Problem = "host " + host + " did not share its budget out: " + sentence(err)
		}
		if result.Problem != "" {
			problems[host] = result.Problem
			workflow.GetLogger(p.ctx).Warn("a budget was not shared out", "pool", p.PoolStart.Pool, "host", host, "problem", result.Problem)
		}
		p.AllocationProblem = inHostOrder(problems)
		gone := func(s tempool.Share) bool {
			return slices.ContainsFunc(processes, func(o tempool.Process) bool { return o.Worker == s.Worker })
		}
		p.Shares = append(slices.DeleteFunc(p.Shares, gone), result.Shares...)
		slices.SortFunc(p.Shares, func(a, b tempool.Share) int { return strings.Compare(a.Worker, b.Worker) })
	})
}

// inHostOrder joins what stood in the hosts' ways; it says the same whichever host answered first.
func inHostOrder(problems map[string]string) string {
	var all []string
	for _, host := range workflow.DeterministicKeys(problems) {
		all = append(all, problems[host])
	}
	return strings.Join(all, "; ")
}
