package process

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// start is one start in progress.
type start struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing of a failed one is left
	limit  startLimit
	turns  *semaphore.Weighted // of all starts in progress with the same limit
}

// startLimit is how many processes of a pool start at once, or of all pools without a start.concurrency.
type startLimit struct {
	pool string
	size int
}

// Start runs an incarnation and returns when it has passed its handshake and warm-up, all within the spec's
// start.timeout. Start first kills older incarnations of the worker that the launch does not keep. It fails with
// CodeSuperseded if this incarnation or a newer one was started, else with CodeStartFailed, whose message has the
// program's last output, or CodeInvalid. When ctx ends, the start is cancelled.
func (s *Supervisor) Start(ctx context.Context, launch Launch) (*Process, error) {
	if err := checkLaunch(launch); err != nil {
		return nil, err
	}
	k := key{launch.Worker, launch.Incarnation}
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	st := &start{cancel: cancel, done: make(chan struct{}), limit: startLimit{size: runtime.NumCPU()}}
	if size := launch.Spec.Start.Concurrency; size > 0 {
		st.limit = startLimit{launch.Spec.Pool.Name, size}
	}
	if err := s.enter(k, st); err != nil {
		return nil, err
	}
	defer s.leave(k)
	p, err := s.run(starting, k, launch, st.turns)
	if err != nil && ctx.Err() != nil {
		return nil, coded(CodeStartFailed, context.Cause(ctx), "the start of %s was cancelled", k)
	}
	return p, err
}

func checkLaunch(l Launch) error {
	switch {
	case l.Worker == "" || l.Incarnation < 1:
		return coded(CodeInvalid, nil, "a launch needs a worker name and an incarnation of 1 or more; got %q and %d",
			l.Worker, l.Incarnation)
	case l.Spec.Pool.Kind == spec.KindProcess && len(l.Spec.Pool.Command) == 0:
		return coded(CodeInvalid, nil, "the spec of %s names no command", l.Worker)
	case l.Spec.Start.Timeout <= 0:
		return coded(CodeInvalid, nil, "the spec of %s has no start.timeout", l.Worker)
	}
	return nil
}

// enter registers a start of an incarnation that was never started.
func (s *Supervisor) enter(k key, st *start) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosing
	}
	if newest := s.newestLocked(k.worker); k.incarnation <= newest {
		return coded(CodeSuperseded, nil, "%s is superseded: incarnation %d was started here", k, newest)
	}
	st.turns = semaphore.NewWeighted(int64(st.limit.size))
	for _, other := range s.starting {
		if other.limit == st.limit {
			st.turns = other.turns
			break
		}
	}
	s.starting[k] = st
	s.processes.Add(1)
	return nil
}

func (s *Supervisor) leave(k key) {
	s.mu.Lock()
	close(s.starting[k].done)
	delete(s.starting, k)
	s.mu.Unlock()
	s.processes.Done()
}

// run performs a start, from killing older incarnations to readiness.
func (s *Supervisor) run(ctx context.Context, k key, launch Launch, turns *semaphore.Weighted) (_ *Process, err error) {
	if err = s.killOlder(ctx, k, launch.Keep); err != nil {
		return nil, err
	}
	if err := turns.Acquire(ctx, 1); err != nil {
		return nil, startCancelled(ctx, "%s waited for other starts", k)
	}
	defer turns.Release(1)

	if launch.era, err = s.era(ctx, launch); err != nil {
		return nil, coded(CodeStartFailed, err, "start %s", k)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, launch.Spec.Start.Timeout.D(), errStartTimeout)
	defer cancel()
	started := time.Now()
	p, err := s.spawnWithTemplate(ctx, launch)
	if err != nil {
		return nil, coded(CodeStartFailed, err, "start %s", k)
	}
	err = p.becomeReady(ctx)
	if err == nil && p.markReady() {
		p.logger.Info("worker process is ready", "pid", p.root.PID, "took", time.Since(started))
		return p, nil
	}
	s.forgetEra(launch.Spec.Pool.Name)
	return nil, p.giveUp(ctx, err)
}

// spawnWithTemplate is spawn; with start.fork, of a fork of the spec's template. A template that does not fork is
// replaced once.
func (s *Supervisor) spawnWithTemplate(ctx context.Context, launch Launch) (p *Process, err error) {
	if !launch.Spec.Start.Fork {
		return s.spawn(ctx, launch)
	}
	sp := launch.Spec // a template keeps it, and is to keep no more of the launch
	for range 2 {
		if launch.template, err = s.readyTemplate(ctx, &sp); err == nil {
			p, err = s.spawn(ctx, launch)
		}
		if !errors.Is(err, errTemplate) {
			break
		}
		s.logger.Warn("replacing a template", "worker", launch.Worker, "error", err)
		if launch.template != nil {
			s.dropTemplate(launch.template)
		}
	}
	return p, err
}

var errStartTimeout = errors.New("start.timeout expired")

// giveUp ends a process that did not become ready, waits until it is gone, and returns why it failed.
func (p *Process) giveUp(ctx context.Context, cause error) error {
	p.condemn(ctx, cause)
	<-p.done
	cancelled := context.Cause(ctx)
	if errors.Is(cancelled, ErrSuperseded) || errors.Is(cancelled, ErrUnavailable) {
		return cancelled
	}
	exit := p.Exit()
	reason := exit.Reason
	silent := exit.Code == 0 && (exit.Signal == "" || exit.Signal == "SIGPIPE") // else its own error says what is wrong
	if cancelled == nil && !exit.ByAgent && errors.Is(cause, errNoHello) &&
		(silent || strings.Contains(reason, "roken pipe") || strings.Contains(reason, "EPIPE")) {
		reason = errNoHello.Error() + ": " + reason
	}
	return &Error{Code: CodeStartFailed, Message: fmt.Sprintf("start %s: %s", p.key(), reason)}
}

// condemn has a process end that did not become ready.
func (p *Process) condemn(ctx context.Context, cause error) {
	cancelled := context.Cause(ctx)
	switch {
	case cancelled == nil && cause == nil: // it ended just as it became ready
	case cancelled == nil:
		reason := fmt.Sprintf("did not become ready: %v", cause)
		if errors.Is(cause, wire.ErrPeerClosed) || errors.Is(cause, errExitedEarly) { // its own end says more
			exit, cancel := context.WithTimeout(ctx, p.exitTime())
			defer cancel()
			select {
			case <-p.exited:
				reason = "ended before it was ready"
			case <-exit.Done():
			}
		}
		p.fail(reason)
	case errors.Is(cancelled, errStartTimeout):
		p.fail(fmt.Sprintf("did not become ready within start.timeout (%s): %v", p.spec.Start.Timeout, cause))
	case errors.Is(cancelled, ErrSuperseded):
		p.Kill(cancelled.Error())
	default:
		p.requestStop(0)
	}
}

// killOlder kills the incarnations of the worker that k supersedes, except those to keep, and waits until they are
// gone.
func (s *Supervisor) killOlder(ctx context.Context, k key, keep []int64) error {
	var gone []<-chan struct{}
	s.mu.Lock()
	for other, st := range s.starting {
		if other.worker == k.worker && other.incarnation < k.incarnation {
			st.cancel(coded(CodeSuperseded, nil, "%s is superseded by incarnation %d", other, k.incarnation))
			gone = append(gone, st.done)
		}
	}
	for other, p := range s.live {
		if other.worker == k.worker && other.incarnation < k.incarnation && !slices.Contains(keep, other.incarnation) {
			p.Kill(fmt.Sprintf("superseded by incarnation %d", k.incarnation))
			gone = append(gone, p.done)
		}
	}
	s.mu.Unlock()
	for _, done := range gone {
		select {
		case <-done:
		case <-ctx.Done():
			return startCancelled(ctx, "%s waited for older incarnations to end", k)
		}
	}
	return nil
}

// startCancelled is the error of a start that was cancelled before its spawn.
func startCancelled(ctx context.Context, format string, args ...any) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrSuperseded) || errors.Is(cause, ErrUnavailable) {
		return cause
	}
	return coded(CodeStartFailed, cause, format, args...)
}
