package process

import (
	"slices"
	"strings"

	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// exitRecordSpec is the spec of all exit records: they have no connection.
var exitRecordSpec = spec.Spec{Pool: spec.Pool{Protocol: spec.ProtocolNone}}

// The channels that all exit records share.
var (
	closedChan = func() chan struct{} {
		c := make(chan struct{})
		close(c)
		return c
	}()
	neverClosed = make(chan struct{})
)

// exitRecord returns a small copy of a process that has ended: its exit, its last log lines, its latest sample and its
// limits. The copy does not keep the connection with its buffers, the environment or the spec in memory.
func (p *Process) exitRecord() *Process {
	p, head := p.now(), p
	r := &Process{
		number:     p.number,
		supervisor: p.supervisor, name: p.name, spec: &exitRecordSpec, plan: &plan{cookie: p.plan.cookie},
		logs: tailOf(p.logs), members: &tree.MemberSet{}, finalCounts: p.Counts(),
		root: p.root, startedAt: p.startedAt, exited: closedChan, done: closedChan, exceeded: closedChan,
	}
	r.kind = program{r}
	r.meter.Restore(head.LatestSample())
	r.memoryExceeded.Store(p.memoryExceeded.Load())
	r.head = r
	head.mu.Lock()
	r.address, r.readyAt, r.exit = head.address, head.readyAt, head.exit
	head.mu.Unlock()
	r.termination = p.currentTermination()
	r.exit.LogTail = slices.Clone(r.exit.LogTail[len(r.exit.LogTail)-min(len(r.exit.LogTail), reasonLines):])
	for i, line := range r.exit.LogTail {
		r.exit.LogTail[i] = strings.Clone(truncate(line, reasonBytes/reasonLines))
	}
	p.limitsMu.Lock()
	r.limits, r.mechanisms, r.violation = p.limits, p.mechanisms, p.violation
	p.limitsMu.Unlock()
	if r.violation == nil {
		r.exceeded = neverClosed
	}
	return r
}
