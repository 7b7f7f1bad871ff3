package limits

import (
	"fmt"
	"time"

	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

const (
	// killFactor times its limit, a tree is killed immediately: it could exhaust the host.
	killFactor = 1.5
	// cpuGracePeriod is how long a tree may exceed limits.cpu; short bursts are harmless.
	cpuGracePeriod = 30 * time.Second
	// cpuTolerance is the fraction by which a tree may exceed limits.cpu: the clock ticks of the process table are coarse.
	cpuTolerance = 0.05
)

// Sampled are the limits of a tree that only the sampler enforces; 0 is none.
type Sampled struct {
	Memory    int64 // bytes
	CPU       float64
	Processes int
}

// NewSampled returns the limits whose mechanism is BySampler.
func NewSampled(l spec.Limits, mechanisms map[string]Mechanism) Sampled {
	var s Sampled
	if mechanisms["memory"] == BySampler {
		s.Memory = int64(l.Memory)
	}
	if mechanisms["cpu"] == BySampler {
		s.CPU = l.CPU
	}
	if mechanisms["processes"] == BySampler {
		s.Processes = l.Processes
	}
	return s
}

// IsZero reports whether no limit is set.
func (l Sampled) IsZero() bool { return l == Sampled{} }

// TreeUsage is one sample of a tree.
type TreeUsage struct {
	at        time.Time
	memory    int64
	cpu       time.Duration // since the tree started
	processes int
}

// Violation is a limit that a process tree exceeded.
type Violation struct {
	// Limit is its key in the section limits.
	Limit string `json:"limit"`
	// Reason is a sentence.
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Action is what a sample calls for.
type Action int

// The actions.
const (
	NoAction Action = iota
	Replace         // replace the worker gracefully
	Kill            // kill the tree immediately
)

// CPUWindow tracks since when a tree exceeds limits.cpu. Its zero value is ready to use.
type CPUWindow struct {
	previous TreeUsage
	since    time.Time
}

// Check decides on one sample. It is pure except for the state in w.
func (l Sampled) Check(usage TreeUsage, w *CPUWindow) (Action, Violation) {
	violation := func(limit, format string, args ...any) Violation {
		return Violation{Limit: limit, Reason: fmt.Sprintf(format, args...), At: usage.at}
	}
	action, found := NoAction, Violation{}
	if l.CPU > 0 {
		if cores, since := w.exceeding(l.CPU, usage); cores >= 0 && usage.at.Sub(since) >= cpuGracePeriod {
			action, found = Replace, violation("cpu", "process tree used more than %v cores for %s, last %.2f (limits.cpu)",
				l.CPU, usage.at.Sub(since).Round(time.Second), cores)
		}
	}
	if l.Processes > 0 && usage.processes > l.Processes {
		action, found = Replace, violation("processes", "process tree has %d processes (limits.processes = %d)",
			usage.processes, l.Processes)
		if float64(usage.processes) >= killFactor*float64(l.Processes) {
			return Kill, found
		}
	}
	if l.Memory > 0 && usage.memory > l.Memory {
		action, found = Replace, violation("memory", "process tree uses %.1f MiB of memory (limits.memory = %q)",
			float64(usage.memory)/(1<<20), spec.Bytes(l.Memory))
		if float64(usage.memory) >= killFactor*float64(l.Memory) {
			return Kill, found
		}
	}
	return action, found
}

// exceeding returns how many cores the tree used since the previous sample and since when it exceeds its limit; −1 if
// it does not.
func (w *CPUWindow) exceeding(limit float64, usage TreeUsage) (cores float64, since time.Time) {
	previous := w.previous
	w.previous = usage
	window := usage.at.Sub(previous.at)
	if previous.at.IsZero() || window <= 0 {
		return -1, time.Time{}
	}
	cores = max(0, usage.cpu-previous.cpu).Seconds() / window.Seconds()
	if cores <= limit*(1+cpuTolerance) {
		w.since = time.Time{}
		return -1, time.Time{}
	}
	if w.since.IsZero() {
		w.since = previous.at
	}
	return cores, w.since
}

// MeasureTree sums the usage of a tree's members. If RSS exceeds memoryLimit and the system reports PSS, pages that
// processes share count once: a program that has forked must not be killed for memory that it does not have.
func MeasureTree(at time.Time, members []*tree.Entry, memoryLimit int64) TreeUsage {
	usage := TreeUsage{at: at, processes: len(members)}
	for _, m := range members {
		rss, cpu := m.RSS, m.CPU
		if rss == 0 && cpu == 0 { // the process table of this system has no usage
			used := tree.UsageOf(m.Identity)
			rss, cpu = used.RSS, used.CPU
		}
		usage.memory += rss
		usage.cpu += cpu
	}
	if memoryLimit <= 0 || usage.memory <= memoryLimit {
		return usage
	}
	var proportional int64
	for _, m := range members {
		pss, readable := tree.PSSOf(m.Identity)
		if !readable {
			return usage
		}
		proportional += pss
	}
	usage.memory = proportional
	return usage
}
