package process

import (
	"context"
	"fmt"
	"time"

	"github.com/tempool/tempool/spec"
)

const (
	// DefaultEnforceEvery is the rhythm in which limits are looked after that nothing stronger holds.
	DefaultEnforceEvery = time.Second
	// killFactor times its limit, a tree is killed at once: it may take the host with it.
	killFactor = 1.5
	// cpuPatience is how long a tree may use more than its cores before it counts: short bursts harm nobody.
	cpuPatience = 30 * time.Second
	// cpuTolerance is by which part a tree may use more than its cores: the clock ticks of the process table are coarse.
	cpuTolerance = 0.05
)

// sampledLimits are limits held by looking; 0 is none.
type sampledLimits struct {
	memory    int64 // bytes
	cpu       float64
	processes int
}

func (l sampledLimits) none() bool { return l == sampledLimits{} }

// treeUse is what a tree used when it was looked at.
type treeUse struct {
	at        time.Time
	memory    int64
	cpu       time.Duration // in all its life
	processes int
}

// Excess is a limit that a process tree has gone over.
type Excess struct {
	// Limit is its key in the section limits.
	Limit string `json:"limit"`
	// Reason is a sentence.
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// verdict is what a look at a tree leads to.
type verdict int

const (
	within  verdict = iota
	recycle         // replace the worker gracefully
	kill            // end the tree at once
)

// cpuWatch remembers since when a tree uses more than its cores. Its zero value is ready to use.
type cpuWatch struct {
	before treeUse
	since  time.Time
}

// judge decides about one look. It is pure but for the memory in w.
func (l sampledLimits) judge(use treeUse, w *cpuWatch) (verdict, Excess) {
	excess := func(limit, format string, args ...any) Excess {
		return Excess{Limit: limit, Reason: fmt.Sprintf(format, args...), At: use.at}
	}
	decided, found := within, Excess{}
	if l.cpu > 0 {
		if over, since := w.over(l.cpu, use); over >= 0 && use.at.Sub(since) >= cpuPatience {
			decided, found = recycle, excess("cpu", "its process tree has used more than %v cores for %s, %.2f at last (limits.cpu)",
				l.cpu, use.at.Sub(since).Round(time.Second), over)
		}
	}
	if l.processes > 0 && use.processes > l.processes {
		decided, found = recycle, excess("processes", "its tree has %d processes (limits.processes = %d)", use.processes, l.processes)
		if float64(use.processes) >= killFactor*float64(l.processes) {
			return kill, found
		}
	}
	if l.memory > 0 && use.memory > l.memory {
		decided, found = recycle, excess("memory", "its process tree uses %s of memory (limits.memory = %q)", mebibytes(use.memory), spec.Bytes(l.memory))
		if float64(use.memory) >= killFactor*float64(l.memory) {
			return kill, found
		}
	}
	return decided, found
}

// over returns how many cores the tree used since the look before and since when it is over its limit; −1 if it is not.
func (w *cpuWatch) over(limit float64, use treeUse) (cores float64, since time.Time) {
	before := w.before
	w.before = use
	span := use.at.Sub(before.at)
	if before.at.IsZero() || span <= 0 {
		return -1, time.Time{}
	}
	cores = max(0, use.cpu-before.cpu).Seconds() / span.Seconds()
	if cores <= limit*(1+cpuTolerance) {
		w.since = time.Time{}
		return -1, time.Time{}
	}
	if w.since.IsZero() {
		w.since = before.at
	}
	return cores, w.since
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// enforceAll looks after the limits that only this side holds, until ctx ends.
func (s *Supervisor) enforceAll(ctx context.Context) {
	ticker := time.NewTicker(s.config.EnforceEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.enforceOnce()
	}
}

func (s *Supervisor) enforceOnce() {
	var t *table
	for _, p := range s.List() {
		limits := p.sampled()
		if limits.none() {
			continue
		}
		if t == nil {
			var err error
			if t, err = glance(); err != nil {
				s.logger.Error("limits of processes cannot be looked after", "error", err)
				return
			}
		}
		p.enforce(limits, t)
	}
}

// enforce compares the tree with its limits and carries out what follows.
func (p *Process) enforce(limits sampledLimits, t *table) {
	select {
	case <-p.exited:
		return
	default:
	}
	key := p.treeKey()
	key.pinned = true
	members := t.members(key)
	if len(members) == 0 {
		return
	}
	use := useOf(t.at, members, limits.memory)
	decided, excess := limits.judge(use, &p.cpuWatch)
	switch decided {
	case recycle:
		p.exceed(excess)
	case kill:
		p.fault(excess.Reason + "; that is too much to wait")
	}
}

// useOf adds up a tree. Pages that its processes share count once where memory is close to limit and the system tells them apart: a
// program that has forked must not be ended for memory that it does not have.
func useOf(at time.Time, members []*row, limit int64) treeUse {
	use := treeUse{at: at, processes: len(members)}
	for _, m := range members {
		rss, cpu := m.rss, m.cpu
		if rss == 0 && cpu == 0 { // the process table of this system does not tell
			used := usageOf(m.identity)
			rss, cpu = used.rss, used.cpu
		}
		use.memory += rss
		use.cpu += cpu
	}
	if limit <= 0 || use.memory <= limit || len(members) == 1 {
		return use
	}
	var proportional int64
	for _, m := range members {
		pss := usageOf(m.identity).pss
		if pss == 0 {
			return use
		}
		proportional += pss
	}
	use.memory = proportional
	return use
}

// exceed tells whoever watches the process, once.
func (p *Process) exceed(e Excess) {
	p.limitsMu.Lock()
	first := p.excess == nil
	if first {
		p.excess = &e
		close(p.exceeded)
	}
	p.limitsMu.Unlock()
	if first {
		p.supervisor.logger.Warn("a worker is over its limit", "worker", p.Worker(), "incarnation", p.Incarnation(), "limit", e.Limit, "reason", e.Reason)
	}
}

// Exceeded is closed when the process has gone over a limit that calls for its graceful replacement; Excess then says which.
func (p *Process) Exceeded() <-chan struct{} { return p.exceeded }

// Excess is the first limit that the process went over, or the zero Excess.
func (p *Process) Excess() Excess {
	p.limitsMu.Lock()
	defer p.limitsMu.Unlock()
	if p.excess == nil {
		return Excess{}
	}
	return *p.excess
}
