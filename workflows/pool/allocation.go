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
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/emit"
	"github.com/tempool/tempool/workflows/internal/failure"
	"github.com/tempool/tempool/workflows/internal/loop"
)

const (
	// firstRebalanceDelay is how long after the first worker serves the pool splits the hosts' budgets for the first time.
	firstRebalanceDelay = 10 * time.Second
	// minShareChange is the part of a share by which it has to change before it is sent to the worker: a signal costs
	// about nine events.
	minShareChange = 0.1
	// maxProblem bounds the text of the hosts' problems, in bytes.
	maxProblem = 1 << 10
)

// allocation splits the budget of each host among the pool's workers on it.
type allocation struct {
	*pool
	inFlight int // hosts that are splitting their budget
}

// rebalance makes each host split its budget, every resources.rebalance.
func (a *allocation) rebalance() {
	r := a.Spec.Resources
	none := r.Allocation == spec.AllocationNone || r.Allocation == ""
	if none {
		a.AllocationProblem = ""
	}
	over := func(s api.Share) bool { return none || !a.hasIncarnation(s.Process) }
	a.Shares, a.ReportedShares = slices.DeleteFunc(a.Shares, over), slices.DeleteFunc(a.ReportedShares, over)
	if none || a.inFlight > 0 {
		return
	}
	hosts := a.servingByHost()
	if len(hosts) == 0 {
		return
	}
	if a.NextRebalance.IsZero() {
		a.NextRebalance = a.Now().Add(min(firstRebalanceDelay, r.Rebalance.D()))
	}
	if wait := a.NextRebalance.Sub(a.Now()); wait > 0 {
		a.wakeAfter(wait)
		return
	}
	a.NextRebalance = a.Now().Add(r.Rebalance.D())
	a.wakeAfter(r.Rebalance.D())
	problems := make(map[string]string, len(hosts))
	for _, host := range workflow.DeterministicKeys(hosts) {
		a.rebalanceHost(host, hosts[host], problems)
	}
}

// hasIncarnation reports whether a process is the present one of a worker.
func (a *allocation) hasIncarnation(p api.Process) bool {
	_, number, err := api.ParseWorkerName(p.Worker)
	s := a.slot(number)
	return err == nil && s != nil && !s.Gone && s.Incarnation == p.Incarnation
}

// servingByHost groups the processes in service.
func (a *allocation) servingByHost() map[string][]api.Process {
	hosts := map[string][]api.Process{}
	for i := range a.Roster {
		if s := a.Roster[i]; s.isServing() && s.Host != "" {
			hosts[s.Host] = append(hosts[s.Host], api.Process{Worker: a.worker(s.Slot), Incarnation: s.Incarnation})
		}
	}
	return hosts
}

// rebalanceHost makes one host split its budget. A host that does not answer is asked again next time. problems
// collects the problems of all hosts of one rebalance.
func (a *allocation) rebalanceHost(host string, processes []api.Process, problems map[string]string) {
	future := loop.OnHost(host, api.ActivityRebalance, "split the budget of host "+host, time.Minute, api.RebalanceRequest{
		Resources: a.Spec.Resources, Processes: processes, Apply: a.Spec.Policy.Mode != spec.PolicyObserve,
	}).Execute(a.Ctx)
	a.inFlight++
	a.OnFuture(future, func(f workflow.Future) {
		a.inFlight--
		var result api.RebalanceResult
		if err := f.Get(a.Ctx, &result); err != nil {
			result.Problem = "host " + host + " did not split its budget: " + failure.Message(err)
		}
		if result.Problem != "" {
			problems[host] = result.Problem
			workflow.GetLogger(a.Ctx).Warn("cannot split the host's budget", "pool", a.name(), "target_host", host,
				"problem", result.Problem)
		}
		var all []string
		for _, host := range workflow.DeterministicKeys(problems) {
			all = append(all, problems[host])
		}
		a.AllocationProblem = display.Truncate(strings.Join(all, "; "), maxProblem)
		old := func(s api.Share) bool {
			return slices.ContainsFunc(processes, func(o api.Process) bool { return o.Worker == s.Worker })
		}
		a.Shares = append(slices.DeleteFunc(a.Shares, old), result.Shares...)
		a.report(result.Shares)
		slices.SortFunc(a.Shares, func(x, y api.Share) int { return strings.Compare(x.Worker, y.Worker) })
	})
}

// report signals workers their new limits, if these have changed enough.
func (a *allocation) report(shares []api.Share) {
	for _, share := range shares {
		_, number, err := api.ParseWorkerName(share.Worker)
		i := slices.IndexFunc(a.ReportedShares, func(old api.Share) bool { return old.Process == share.Process })
		if err != nil || !share.Applied || i >= 0 && similar(a.ReportedShares[i], share) {
			continue
		}
		if i >= 0 {
			a.ReportedShares[i] = share
		} else {
			a.ReportedShares = append(a.ReportedShares, share)
		}
		workflow.GetLogger(a.Ctx).Info("share of a host's budget applied", "worker", share.Worker,
			"memory_bytes", share.MemoryBytes, "cpu_cores", share.CPUCores)
		emit.Event(a.Ctx, api.EventResourcesRebalanced, api.WorkerSource(share.Worker), api.RebalanceEvent{
			Incarnation: share.Incarnation, MemoryBytes: share.MemoryBytes, CPUCores: share.CPUCores,
		})
		a.signalWorker(number, api.SignalLimitsApplied, api.LimitsApplied{
			Incarnation: share.Incarnation, MemoryBytes: share.MemoryBytes, CPUCores: share.CPUCores, Limits: share.Limits,
			Reason: fmt.Sprintf("limits set to the %s share of the host's budget: %d MB, %.2f cores",
				a.Spec.Resources.Allocation, share.MemoryBytes/1_000_000, share.CPUCores),
		})
	}
}

// similar reports whether two shares differ by less than minShareChange.
func similar(a, b api.Share) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) <= minShareChange*math.Max(x, y) }
	return near(float64(a.MemoryBytes), float64(b.MemoryBytes)) && near(a.CPUCores, b.CPUCores) &&
		maps.Equal(a.Limits, b.Limits)
}
