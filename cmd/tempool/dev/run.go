// Package dev is tempool dev: a Temporal server, an agent, a pool and a job, in one process.
package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tempool/tempool/cmd/tempool/codemetrics"
)

// errInterrupted ends a run on request.
var errInterrupted = errors.New("interrupted")

// Run starts everything, runs the job, and returns at the end of ctx or, with Once, at the end of the job. It stops
// everything that it started. The end of ctx is an error only before the job is done.
func Run(ctx context.Context, options Options) (err error) {
	s := &starter{options: options}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer func() {
		cancel(nil)
		watching.Wait()
		err = errors.Join(err, s.stopAll())
	}()
	for _, step := range []func(context.Context) error{s.prepare, s.startServer, s.startAgent, s.startPool} {
		if err := step(ctx); err != nil {
			return cmp.Or(context.Cause(ctx), err) // the failure follows from the end of ctx, if that has ended
		}
	}
	watching.Go(func() { s.watch(ctx, cancel) })
	if err := s.runJob(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if s.options.Once {
		return nil
	}
	s.showNextSteps(ctx)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) && !errors.Is(cause, errGoRunExited) &&
		!errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// prepare does everything that needs no server, to fail early.
func (s *starter) prepare(ctx context.Context) (err error) {
	if s.data, err = openDataDir(s.options.DataDir); err != nil {
		return err
	}
	s.onStop("", time.Second, func(context.Context) error { return s.data.close() })
	if s.spec, err = s.loadSpec(); err != nil {
		return err
	}
	if s.spec.Pool.Name == exampleName {
		s.library, err = codemetrics.StandardLibrary(ctx)
	}
	return err
}

// watch cancels the run when the agent or its own server ends.
func (s *starter) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	var serverEnded <-chan struct{}
	if s.server != nil {
		serverEnded = s.server.Done()
	}
	select {
	case <-ctx.Done():
	case err := <-s.agent.Failed():
		cancel(fmt.Errorf("the agent failed: %w", err))
	case <-serverEnded:
		cancel(fmt.Errorf("the Temporal server exited; start again. The end of its log %s:\n%s", s.data.serverOut.Name(),
			s.server.LogTail()))
	}
}
