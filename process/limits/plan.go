// Package limits enforces the resource limits of process trees with the strongest mechanism that the host offers:
// cgroup v2, rlimits, the scheduler, or sampling.
package limits

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/spec"
)

// Mechanism is how a limit is enforced. The words appear in state and metrics.
type Mechanism = string

// The mechanisms, the strongest first.
const (
	ByCgroup    Mechanism = "cgroup"    // the kernel, for the whole tree
	ByRlimit    Mechanism = "rlimit"    // the kernel, for each process
	ByScheduler Mechanism = "scheduler" // the kernel, for each process: cores and priority
	ByKernel    Mechanism = "kernel"    // the kernel's OOM killer
	ByEngine    Mechanism = "engine"    // the container engine, for the container
	ByGateway   Mechanism = "gateway"   // the agent's gateway, for the calls that pass through it
	BySampler   Mechanism = "sampler"   // the agent, which samples the tree and replaces or kills the worker
)

// Host is what a host offers to enforce limits with.
type Host struct {
	Controllers map[string]bool // usable cgroup controllers: memory, cpu, pids
	Cores       []int           // that the agent may use; nil if unknown
	Linux       bool            // which has affinity and OOM scores
}

// Plan is how limits are enforced on a host.
type Plan struct {
	// Mechanisms has an entry for each limit that is set, by its key in the section limits.
	Mechanisms map[string]Mechanism
	PerProcess launcher.Limits
	Cgroup     CgroupLimits
}

// NewPlan chooses the strongest mechanism for each limit. It fails if the host cannot enforce a limit at all.
func NewPlan(l spec.Limits, worker string, host Host) (Plan, error) {
	plan := Plan{
		Mechanisms: map[string]Mechanism{}, PerProcess: NewPerProcess(l, AssignCores(l, worker, host.Cores)),
		Cgroup: newCgroupLimits(l),
	}
	perTree := func(key, controller string, set bool) {
		switch {
		case !set:
		case host.Controllers[controller]:
			plan.Mechanisms[key] = ByCgroup
		default:
			plan.Mechanisms[key] = BySampler
		}
	}
	perTree("memory", "memory", l.Memory > 0)
	perTree("cpu", "cpu", l.CPU > 0)
	perTree("processes", "pids", l.Processes > 0)

	for _, required := range []struct {
		key            string
		set, supported bool
		mechanism      Mechanism
	}{
		{"open_files", l.OpenFiles > 0, true, ByRlimit},
		{"cpu_time", l.CPUTime > 0, true, ByRlimit},
		{"cpu_affinity", len(l.CPUAffinity) > 0, host.Linux, ByScheduler},
		{"cpu_affinity_each", l.CPUAffinityEach > 0, host.Linux, ByScheduler},
		{"nice", l.Nice != 0, true, ByScheduler},
		{"oom_score_adj", l.OOMScoreAdj != 0, host.Linux, ByKernel},
		{"calls_per_minute", l.CallsPerMinute > 0, true, ByGateway},
	} {
		if required.set && !required.supported {
			return plan, fmt.Errorf("limits.%s is not supported on macOS; remove it or run the pool on Linux", required.key)
		}
		if required.set {
			plan.Mechanisms[required.key] = required.mechanism
		}
	}
	return plan, nil
}

// NewPerProcess returns the per-process limits of l with the worker's cores.
func NewPerProcess(l spec.Limits, cores []int) launcher.Limits {
	return launcher.Limits{
		OpenFiles: uint64(l.OpenFiles), CPUSeconds: uint64(math.Ceil(l.CPUTime.D().Seconds())), Affinity: cores,
		Nice: l.Nice, OOMScoreAdj: l.OOMScoreAdj,
	}
}

// AssignCores returns the cores that a worker is bound to; nil for all. With limits.cpu_affinity_each the worker's slot
// decides, and each pool starts at another core, so that the first workers of many pools do not share the first core.
func AssignCores(l spec.Limits, worker string, host []int) []int {
	available, each := l.CPUAffinity, l.CPUAffinityEach
	if len(available) == 0 {
		available = host
	}
	if each == 0 || each >= len(available) {
		return l.CPUAffinity
	}
	pool, number, _ := strings.Cut(worker, "/")
	slot, _ := strconv.Atoi(number) // 0 for a name that is not of a pool's worker
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pool)) // never fails
	start := int(hash.Sum32()%uint32(len(available))) + slot%len(available)*each
	cores := make([]int, each)
	for i := range cores {
		cores[i] = available[(start+i)%len(available)]
	}
	slices.Sort(cores)
	return cores
}
