package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// start is one start in progress, which any number of callers may await. When the last of them leaves, it is cancelled.
type start struct {
	done   chan struct{}
	cancel context.CancelCauseFunc
	// callers is guarded by the supervisor's mu.
	callers int
	// process and err are set before done is closed.
	process *Process
	err     error
}

// startGate bounds the starts of one pool at one time.
type startGate struct {
	size int
	sem  *semaphore.Weighted
}

// Start runs an incarnation and returns when it has passed its handshake and warm-up, all within the spec's start.timeout. It is
// idempotent by worker and incarnation: a second call returns the process that lives, or joins the start in progress, or fails as the
// incarnation did. An older incarnation of the worker that is still here is killed first, unless the launch keeps it; one older than the
// newest seen fails with CodeSuperseded. Every other failure is CodeStartFailed, whose message has the program's last output, or CodeInvalid. When ctx ends, the
// start is given up unless other callers await it.
func (s *Supervisor) Start(ctx context.Context, launch Launch) (*Process, error) {
	if err := checkLaunch(launch); err != nil {
		return nil, err
	}
	k := key{launch.Worker, launch.Incarnation}
	st, p, err := s.join(k, launch)
	if p != nil || err != nil {
		return p, err
	}
	select {
	case <-st.done:
		return st.process, st.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	st.callers--
	last := st.callers == 0
	s.mu.Unlock()
	if last {
		st.cancel(context.Cause(ctx))
		<-st.done // a start that is given up leaves nothing behind its caller's back
		if st.err == nil {
			return st.process, nil // it was through before the cancel came
		}
	}
	return nil, coded(CodeStartFailed, context.Cause(ctx), "the start of %s was given up", k)
}

func checkLaunch(l Launch) error {
	switch {
	case l.Worker == "" || l.Incarnation < 1:
		return coded(CodeInvalid, nil, "a launch needs a worker's name and an incarnation from 1 on; got %q and %d", l.Worker, l.Incarnation)
	case len(l.Spec.Pool.Command) == 0:
		return coded(CodeInvalid, nil, "the spec of %s names no command", l.Worker)
	case l.Spec.Start.Timeout <= 0:
		return coded(CodeInvalid, nil, "the spec of %s has no start.timeout", l.Worker)
	}
	return nil
}

// join returns the start in progress, begun here if need be, or the process if it is beyond that.
func (s *Supervisor) join(k key, launch Launch) (*start, *Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, nil, errClosing
	}
	if newest := s.newest[k.worker]; k.incarnation < newest {
		return nil, nil, coded(CodeSuperseded, nil, "%s is superseded by incarnation %d", k, newest)
	}
	if st, found := s.starting[k]; found {
		st.callers++
		return st, nil, nil
	}
	if p, found := s.live[k]; found {
		return nil, p, nil
	}
	if p, found := s.ended[k]; found {
		return nil, nil, coded(CodeStartFailed, nil, "%s has already ended: %s", k, p.Exit().Reason)
	}
	s.newest[k.worker] = k.incarnation
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.life))
	st := &start{done: make(chan struct{}), cancel: cancel, callers: 1}
	s.starting[k] = st
	s.processes.Add(1)
	go func() {
		defer s.processes.Done()
		defer cancel(nil)
		p, err := s.run(ctx, k, launch)
		s.mu.Lock()
		delete(s.starting, k)
		s.mu.Unlock()
		st.process, st.err = p, err
		close(st.done)
	}()
	return st, nil, nil
}

// run carries out a start from the end of older incarnations to readiness.
func (s *Supervisor) run(ctx context.Context, k key, launch Launch) (*Process, error) {
	if err := s.endOlder(ctx, k, launch.Keep); err != nil {
		return nil, err
	}
	gate := s.gateFor(launch)
	if err := gate.Acquire(ctx, 1); err != nil {
		return nil, giveUp(ctx, "%s waited for other starts", k)
	}
	defer gate.Release(1)
	if ctx.Err() != nil {
		return nil, giveUp(ctx, "%s waited for other starts", k)
	}

	limit := launch.Spec.Start.Timeout.D()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errStartTimeout)
	defer cancel()
	began := time.Now()
	p, err := s.spawn(launch)
	if err != nil {
		return nil, coded(CodeStartFailed, err, "start %s", k)
	}
	err = p.becomeReady(ctx)
	if err == nil && p.markReady() {
		s.logger.Info("worker process is ready", "worker", k.worker, "incarnation", k.incarnation, "pid", p.root.PID, "took", time.Since(began))
		return p, nil
	}
	return nil, p.abandon(ctx, err)
}

var errStartTimeout = errors.New("start.timeout is over")

// abandon ends a process that did not become ready, waits until it is gone, and says why it failed.
func (p *Process) abandon(ctx context.Context, cause error) error {
	given := context.Cause(ctx)
	switch {
	case given == nil && cause == nil: // it ended in the moment it became ready
	case given == nil:
		p.fault(fmt.Sprintf("it did not become ready: %v", cause))
	case errors.Is(given, errStartTimeout):
		p.fault(fmt.Sprintf("it did not become ready within start.timeout (%s): %v", p.spec.Start.Timeout, cause))
	case errors.Is(given, ErrSuperseded):
		p.Kill(given.Error())
	default:
		p.requestStop(0)
	}
	<-p.done
	if errors.Is(given, ErrSuperseded) || errors.Is(given, ErrUnavailable) {
		return given
	}
	return &Error{Code: CodeStartFailed, Message: fmt.Sprintf("start %s: %s", p.key(), p.Exit().Reason)}
}

// endOlder kills incarnations of the same worker that k supersedes, but for those to keep, and waits until they are gone.
func (s *Supervisor) endOlder(ctx context.Context, k key, keep []int64) error {
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
			return giveUp(ctx, "%s waited for older incarnations to die", k)
		}
	}
	return nil
}

// giveUp is the error of a start that was cancelled before it made a process.
func giveUp(ctx context.Context, format string, args ...any) error {
	given := context.Cause(ctx)
	if errors.Is(given, ErrSuperseded) || errors.Is(given, ErrUnavailable) {
		return given
	}
	return coded(CodeStartFailed, given, format, args...)
}

// gateFor returns what bounds the starts of the launch's pool: its own start.concurrency, or else the host's.
func (s *Supervisor) gateFor(launch Launch) *semaphore.Weighted {
	size := launch.Spec.Start.Concurrency
	if size <= 0 {
		return s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pool := launch.Spec.Pool.Name
	if gate := s.gates[pool]; gate == nil || gate.size != size {
		s.gates[pool] = &startGate{size: size, sem: semaphore.NewWeighted(int64(size))}
	}
	return s.gates[pool].sem
}
