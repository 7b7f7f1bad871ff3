package metrics

import (
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// processFacts is what this host knows about a worker's process.
type processFacts struct {
	ready, stopping, suspended, degraded, draining, leased bool
}

// workerStateOf returns the worker's state as its host sees it, which may be some milliseconds ahead of or behind its
// workflow.
func workerStateOf(f processFacts) lifecycle.State {
	switch {
	case f.stopping:
		return lifecycle.Stopping
	case !f.ready:
		return lifecycle.Starting
	case f.draining:
		return lifecycle.Draining
	case f.suspended:
		return lifecycle.Suspended
	case f.degraded:
		return lifecycle.Degraded
	case f.leased:
		return lifecycle.Busy
	}
	return lifecycle.Ready
}

// workerUsage is the usage of all processes of one worker. newest is the newest that is ready, else the newest.
type workerUsage struct {
	newest         *process.Process
	sampled        bool
	memory         int64
	cpu            float64
	files, threads int
}

// usageByWorker sums up processes, which are ordered by worker and incarnation.
func usageByWorker(all []*process.Process) map[string]workerUsage {
	usage := make(map[string]workerUsage)
	for _, p := range all {
		u := usage[p.Worker()]
		if u.newest == nil || !p.Info().ReadyAt.IsZero() {
			u.newest = p
		}
		if sample := p.LatestSample(); !sample.At.IsZero() {
			u.sampled = true
			u.memory += sample.MemoryBytes
			u.cpu += sample.CPUPercent
			u.files += sample.OpenFiles
			u.threads += sample.Threads
		}
		usage[p.Worker()] = u
	}
	return usage
}
