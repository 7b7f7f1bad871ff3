package process

import (
	"context"
	"fmt"
	"time"
)

// Use records that the incarnation's newest process is about to serve a key or, for "", its only use (isolation.by),
// before the first byte of it is sent. It reports false if Use has been called for the process before, under an earlier
// agent too; such a process must never serve another key or use.
func (p *Process) Use(key string) bool {
	return p.now().used.CompareAndSwap(nil, &Use{Key: key, Since: time.Now().UTC()})
}

// Use is what a process serves, and since when.
type Use struct {
	Key   string    `json:"key,omitempty"`
	Since time.Time `json:"since"`
}

// Used is the Use of the incarnation's newest process; nil before Use has been called for it.
func (p *Process) Used() *Use { return p.now().used.Load() }

// Recycle ends the newest process of the incarnation, with its whole tree, and then makes a clean one. It returns at
// once. Once the clean one is ready, which Conn then is the connection of, it calls clean. If it does not become ready,
// the incarnation ends.
func (p *Process) Recycle(clean func()) {
	p.updateTermination(func(t *termination) {
		if !t.recycled {
			t.recycled, t.clean = true, func(error) { clean() }
		}
	})
}

// succeed starts the next process of the incarnation, whose process p and tree are gone: the one that Bind asked for,
// or else a clean one, or a vacancy. failed is why p did not start for its key, nil if that is not why it ended. If
// succeed fails, failure says why the incarnation ends.
func (p *Process) succeed(failed error) (next *Process, failure string) {
	p.kind.release()
	s, launch := p.supervisor, p.launch
	launch.after, launch.binding = p, p.currentTermination().binding
	ctx, cancel := context.WithTimeoutCause(s.ctx, p.spec.Start.Timeout.D(), errStartTimeout)
	next, err := s.spawnWithTemplate(ctx, launch)
	if err != nil && launch.binding != nil {
		failed, launch.binding = coded(CodeStartFailed, err, "start %s for a key", p.key()), nil
		next, err = s.spawn(ctx, launch)
	}
	if err != nil {
		cancel()
		return nil, fmt.Sprintf("process %d of the incarnation was not started: %v", p.number+1, err)
	}
	p.head.applying.Lock()
	inForce, of := p.Limits(), next.spec.Limits
	if inForce.Memory != of.Memory || inForce.CPU != of.CPU {
		if _, err := next.applyLimits(inForce.Memory, inForce.CPU); err != nil {
			next.logger.Warn("a clean process has the limits of its spec", "error", err)
		}
	}
	var clean func(error)
	p.head.updateTermination(func(t *termination) { // nobody can change it meanwhile
		clean = t.clean
		next.termination = *t // what was asked since
		next.termination.recycled, next.termination.binding, next.termination.failure = false, nil, ""
		if next.binding == nil {
			next.termination.clean = nil
		}
		p.head.newest.Store(next)
	})
	p.head.applying.Unlock()
	s.processes.Go(func() {
		defer cancel()
		err := next.becomeReady(ctx)
		if err == nil && next.markReady() {
			clean(failed)
			return
		}
		next.condemn(ctx, err)
	})
	return next, ""
}
