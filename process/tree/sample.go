package tree

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

// minCPUWindow is the shortest window over which CPU use is measured. One clock tick of 10 ms is then 5 % of a core.
const minCPUWindow = 200 * time.Millisecond

// Usage is the resource usage of one process. Where the process table has a value already, 0 means to use that.
type Usage struct {
	RSS         int64
	CPU         time.Duration
	threads     int
	openFiles   int
	read, wrote int64
}

// ErrEnded means that a tree has no living process to sample.
var ErrEnded = errors.New("the process has ended")

// Meter turns process tables into the samples of one tree. It is safe for concurrent use.
type Meter struct {
	mu     sync.Mutex
	latest api.Sample
	cpu    time.Duration // of the tree at cpuAt
	cpuAt  time.Time     // when CPUPercent was measured last, and at first when the program began to run
	io     map[Identity]Usage
	ended  Usage // read and wrote of members that are gone
	pss    pssReading

	network networkTotal
}

// Start sets when the program began to run, and the CPU time that its process had used before.
func (m *Meter) Start(at time.Time, cpu time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cpuAt, m.cpu = at, cpu
}

// Restore sets the latest sample of a tree that has ended.
func (m *Meter) Restore(latest api.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest = latest
}

// Latest returns the newest sample; its At is zero before the first.
func (m *Meter) Latest() api.Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// Sample measures the tree in t. It returns the latest sample if t is not newer, and fails with ErrEnded if t has no
// member of the tree. The budget bounds how often it reads PSS; with nil it does.
func (m *Meter) Sample(t *Table, key Key, budget *PSSBudget) (api.Sample, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !t.At.After(m.latest.At) {
		return m.latest, nil
	}
	members := t.Members(key)
	if len(members) == 0 {
		return api.Sample{}, ErrEnded
	}
	sample := m.measureLocked(t.At, members, UsageOf)
	sample.Network = m.network.add(interfacesOf(members, key))
	m.addMemoryLocked(&sample, members, budget, PSSOf)
	m.latest = sample
	return sample, nil
}

// measureLocked makes the next sample, except its memory, from the living members of the tree.
func (m *Meter) measureLocked(at time.Time, members []*Entry, usageOf func(Identity) Usage) api.Sample {
	sample := api.Sample{At: at, Children: len(members) - 1, CPUPercent: m.latest.CPUPercent}
	var cpu time.Duration
	io := make(map[Identity]Usage, len(members))
	for _, member := range members {
		used := usageOf(member.Identity)
		sample.RSSBytes += cmp.Or(used.RSS, member.RSS)
		sample.OpenFiles += used.openFiles
		sample.Threads += cmp.Or(used.threads, member.threads)
		cpu += cmp.Or(used.CPU, member.CPU)
		before := m.io[member.Identity]
		used.read, used.wrote = max(used.read, before.read), max(used.wrote, before.wrote)
		io[member.Identity] = used
		sample.ReadBytes += used.read
		sample.WriteBytes += used.wrote
	}
	for id, before := range m.io {
		if _, alive := io[id]; !alive {
			m.ended.read += before.read
			m.ended.wrote += before.wrote
		}
	}
	sample.ReadBytes += m.ended.read
	sample.WriteBytes += m.ended.wrote
	// The CPU time of a member that nobody waited for is lost, so the sum may fall.
	if window := at.Sub(m.cpuAt); window >= minCPUWindow {
		sample.CPUPercent = 100 * float64(max(0, cpu-m.cpu)) / float64(window)
		m.cpu, m.cpuAt = cpu, at
	}
	m.latest, m.io = sample, io
	return sample
}
