package process

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/spec"
)

// Means is how a limit is held. The words appear in state and metrics.
type Means string

// The means, the strongest first.
const (
	ByCgroup    Means = "cgroup"    // the kernel, for the whole tree
	ByRlimit    Means = "rlimit"    // the kernel, for each process
	ByScheduler Means = "scheduler" // the kernel, for each process: cores and priority
	ByKernel    Means = "kernel"    // the kernel's choice of whom to kill when memory runs out
	ByGateway   Means = "gateway"   // the agent's gateway, for the calls that pass it
	BySampler   Means = "sampler"   // this side looks every second, and has the worker replaced or kills it
	ByNothing   Means = "none"      // not enforced on this system
)

// hostMeans is what a host has to hold limits with.
type hostMeans struct {
	cgroup       map[string]bool // controllers to use: memory, cpu, pids
	rlimits      bool            // of a child, before it runs
	affinity     bool
	cores        []int // the agent may use
	oomScoreAdj  bool
	unsupported  string // the system, for sentences about what it lacks
	changeLimits bool   // rlimits of a process that runs
}

// plannedLimits is how the limits of a spec are held on a host.
type plannedLimits struct {
	// Means has an entry for each limit that is set, by its key in the section limits.
	means  map[string]Means
	own    processLimits
	cgroup cgroupLimits
	// useCgroup says that the incarnation gets a cgroup, be it only so that limits can be set later.
	useCgroup bool
}

// planLimits chooses the strongest means for each limit. It fails with CodeInvalid where a limit cannot be held on this host at all,
// rather than run a worker without it; only open_files, which is set by default, then counts as not enforced.
func planLimits(sp *spec.Spec, worker string, host hostMeans) (plannedLimits, error) {
	l := sp.Limits
	planned := plannedLimits{means: map[string]Means{}}
	byTree := func(key, controller string, set bool) {
		switch {
		case !set:
		case host.cgroup[controller]:
			planned.means[key] = ByCgroup
		default:
			planned.means[key] = BySampler
		}
	}
	byTree("memory", "memory", l.Memory > 0)
	byTree("cpu", "cpu", l.CPU > 0)
	byTree("processes", "pids", l.Processes > 0)
	planned.useCgroup = len(host.cgroup) > 0 &&
		(l.Memory > 0 || l.CPU > 0 || l.Processes > 0 || sp.Resources.Allocation != spec.AllocationNone)
	planned.cgroup = cgroupLimitsOf(l)

	refuse := func(key string) error {
		return coded(CodeInvalid, nil, "limits.%s cannot be held on %s: remove it, or run the pool on Linux", key, host.unsupported)
	}
	if l.OpenFiles > 0 {
		planned.means["open_files"] = ByNothing
		if host.rlimits {
			planned.means["open_files"] = ByRlimit
			planned.own.OpenFiles = uint64(l.OpenFiles)
		}
	}
	if l.CPUTime > 0 {
		if !host.rlimits {
			return planned, refuse("cpu_time")
		}
		planned.means["cpu_time"] = ByRlimit
		planned.own.CPUSeconds = wholeSeconds(l.CPUTime.D())
	}
	bind := func(key string, set bool) error {
		if set && !host.affinity {
			return refuse(key)
		} else if set {
			planned.means[key] = ByScheduler
		}
		return nil
	}
	if err := cmp.Or(bind("cpu_affinity", len(l.CPUAffinity) > 0), bind("cpu_affinity_each", l.CPUAffinityEach > 0)); err != nil {
		return planned, err
	}
	planned.own.Affinity = coresOf(l, worker, host.cores)
	if l.Nice != 0 {
		if !host.rlimits {
			return planned, refuse("nice")
		}
		planned.means["nice"] = ByScheduler
		planned.own.Nice = l.Nice
	}
	if l.OOMScoreAdj != 0 {
		if !host.oomScoreAdj {
			return planned, refuse("oom_score_adj")
		}
		planned.means["oom_score_adj"] = ByKernel
		planned.own.OOMScoreAdj = l.OOMScoreAdj
	}
	if l.CallsPerMinute > 0 {
		planned.means["calls_per_minute"] = ByGateway
	}
	return planned, nil
}

// coresOf are the cores that a worker is bound to; none for all. With limits.cpu_affinity_each its slot decides, and each pool begins at
// another core, so that the first workers of many pools do not share the first one.
func coresOf(l spec.Limits, worker string, host []int) []int {
	among, each := l.CPUAffinity, l.CPUAffinityEach
	if len(among) == 0 {
		among = host
	}
	if each == 0 || each >= len(among) {
		return l.CPUAffinity
	}
	pool, number, _ := strings.Cut(worker, "/")
	slot, _ := strconv.Atoi(number) // 0 for what is no worker of a pool
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pool)) // never fails
	begin := int(hash.Sum32()%uint32(len(among))) + slot%len(among)*each
	cores := make([]int, each)
	for i := range cores {
		cores[i] = among[(begin+i)%len(among)]
	}
	slices.Sort(cores)
	return cores
}

// wholeSeconds rounds up: that is how the kernel counts CPU time.
func wholeSeconds(d time.Duration) uint64 {
	return uint64(math.Ceil(d.Seconds()))
}

// LimitMeans says by which means each limit that is set is in force, by its key in the section limits. The map is the caller's.
func (p *Process) LimitMeans() map[string]Means {
	p.limitsMu.Lock()
	defer p.limitsMu.Unlock()
	return maps.Clone(p.limitMeans)
}

// Limits are those in force: the spec's, or what ApplyLimits made of them.
func (p *Process) Limits() spec.Limits {
	p.limitsMu.Lock()
	defer p.limitsMu.Unlock()
	return p.limits
}

// sampled are the limits that only the sampler holds.
func (p *Process) sampled() sampledLimits {
	p.limitsMu.Lock()
	defer p.limitsMu.Unlock()
	var l sampledLimits
	if p.limitMeans["memory"] == BySampler {
		l.memory = int64(p.limits.Memory)
	}
	if p.limitMeans["cpu"] == BySampler {
		l.cpu = p.limits.CPU
	}
	if p.limitMeans["processes"] == BySampler {
		l.processes = p.limits.Processes
	}
	return l
}
