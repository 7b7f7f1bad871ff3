package process

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tempool/tempool/internal/sleep"
)

// termination is what the supervisor does to end an incarnation, and why.
type termination struct {
	stopped      bool          // SIGTERM was requested
	deadline     time.Time     // when SIGTERM turns into SIGKILL
	grace        time.Duration // the requested time until then
	graceExpired bool
	killReason   string      // of Kill
	failure      string      // what is wrong with the program
	handedOver   bool        // by HandOver: the process keeps running
	cutCall      string      // why a cancelled call was cut with the process
	recycled     bool        // by Recycle and Bind: the incarnation continues with another process
	clean        func(error) // of Recycle and Bind
	binding      *Binding    // of Bind
}

// killed reports whether the tree is to be killed immediately.
func (t termination) killed() bool { return t.recycled || t.ends() }

// ends reports whether the incarnation is to be killed immediately.
func (t termination) ends() bool { return t.killReason != "" || t.failure != "" || t.cutCall != "" }

// Stop sends SIGTERM to the process group and, after grace, SIGKILL to the whole tree; a grace of 0 or less means the
// spec's stop_grace. It returns how the process ended, once the tree is gone. Further calls join the stop in progress
// and may shorten its grace. If ctx ends first, Stop returns ctx's error and the stop continues.
func (p *Process) Stop(ctx context.Context, grace time.Duration) (Exit, error) {
	p.requestStop(grace)
	select {
	case <-p.done:
		return p.Exit(), nil
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("stop %s: %w", p.key(), context.Cause(ctx))
	}
}

// Kill ends the whole tree immediately and does not wait; reason appears in the Exit.
func (p *Process) Kill(reason string) {
	p.updateTermination(func(t *termination) { t.killReason = cmp.Or(t.killReason, reason) })
}

// Stopping reports whether the incarnation is being ended, with SIGTERM or immediately.
func (p *Process) Stopping() bool {
	t := p.now().currentTermination()
	return t.stopped || t.ends()
}

func (p *Process) requestStop(grace time.Duration) {
	if grace <= 0 {
		grace = p.spec.Pool.StopGrace.D()
	}
	p.updateTermination(func(t *termination) {
		deadline := time.Now().Add(grace)
		if !t.stopped || deadline.Before(t.deadline) {
			t.deadline, t.grace = deadline, grace
		}
		t.stopped = true
	})
}

// fail kills the process because of something that is wrong with it.
func (p *Process) fail(reason string) {
	p.updateTermination(func(t *termination) { t.failure = cmp.Or(t.failure, reason) })
}

func (p *Process) updateTermination(set func(*termination)) {
	p.head.mu.Lock() // a process that succeeds another takes its termination over
	n := p.now()
	if n != p.head {
		n.mu.Lock()
	}
	set(&n.termination)
	if n != p.head {
		n.mu.Unlock()
	}
	p.head.mu.Unlock()
	sleep.Wake(n.wake)
}

func (p *Process) currentTermination() termination {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.termination
}
