package process

import (
	"slices"
	"strings"

	"github.com/tempool/tempool/spec"
)

// specOfRemains is the spec of all that ended a while ago: there is nothing to speak through.
var specOfRemains = spec.Spec{Pool: spec.Pool{Protocol: spec.ProtocolNone}}

// The channels of what has happened to all remains, and of what can happen to none any more.
var (
	hasHappened = func() chan struct{} {
		c := make(chan struct{})
		close(c)
		return c
	}()
	neverHappens = make(chan struct{})
)

// remains is what is remembered of a process that ended a while ago: how it ended, its last words, its numbers and the limits it had.
// Its connection with all buffers, its environment and its spec are let go; whoever holds p itself keeps them.
func (p *Process) remains() *Process {
	r := &Process{
		supervisor: p.supervisor, name: p.name, spec: &specOfRemains, plan: &plan{cookie: p.plan.cookie},
		logs: p.logs.tail(), known: &memberSet{}, counted: p.Counts(), over: true,
		root: p.root, startedAt: p.startedAt, exited: hasHappened, done: hasHappened, exceeded: hasHappened,
	}
	r.meter.latest = p.LatestSample()
	p.mu.Lock()
	r.address, r.readyAt, r.exit, r.ending = p.address, p.readyAt, p.exit, p.ending
	p.mu.Unlock()
	r.exit.LogTail = slices.Clone(r.exit.LogTail[len(r.exit.LogTail)-min(len(r.exit.LogTail), reasonLines):])
	for i, line := range r.exit.LogTail {
		r.exit.LogTail[i] = strings.Clone(cut(line, reasonBytes/reasonLines))
	}
	p.limitsMu.Lock()
	r.limits, r.limitMeans, r.excess = p.limits, p.limitMeans, p.excess
	p.limitsMu.Unlock()
	if r.excess == nil {
		r.exceeded = neverHappens
	}
	return r
}
