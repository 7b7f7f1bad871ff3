// Package starter is the logic of cmd/starter: a Temporal server, an agent, a pool and a job on it, in one process.
package starter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/internal/codemetrics"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// Options are the starter's flags.
type Options struct {
	Once      bool
	Address   string
	Namespace string
	PoolFile  string // "" is the example
	Size      int    // 0: what the file says
	// Port and UIPort are 0 for the usual ones where they are free, else free ones.
	Port, UIPort int
	Listen       string // "" for the usual one where it is free, else a free one
	Fresh        bool
	// CacheDir keeps what outlives a run. Default: tempool in the user's cache folder.
	CacheDir string
	Out      io.Writer
}

// starter is one run.
type starter struct {
	options Options
	screen  *screen
	folder  *folder
	log     *slog.Logger

	spec     spec.Spec
	unpacked string               // the example's pool.toml, if that is what runs
	library  *codemetrics.Library // what the job measures; nil for no job

	server   *devserver.Server // nil when somebody else's is used
	temporal tempool.Options
	client   *tempool.Client
	agent    *worker.Agent
	ours     bool // the pool is this starter's to stop

	stops []stop // in the order of what was started
}

// stop ends one part; what is its name for people.
type stop struct {
	what  string
	limit time.Duration
	end   func(ctx context.Context) error
}

func (s *starter) onStop(what string, limit time.Duration, end func(ctx context.Context) error) {
	s.stops = append(s.stops, stop{what, limit, end})
}

// Run brings everything up, runs the job, and goes on until ctx ends or, with Once, until the job is done. When it returns, what it
// has started is stopped. An end of ctx while everything runs is no failure.
func Run(ctx context.Context, options Options) (err error) {
	s := &starter{options: options, screen: newScreen(options.Out)}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer func() {
		cancel(nil)
		watching.Wait()
		err = errors.Join(err, s.stopAll())
	}()
	if err := s.prepare(ctx); err != nil {
		return interruption(ctx, err)
	}
	if err := s.bringUp(ctx); err != nil {
		return interruption(ctx, err)
	}
	watching.Go(func() { s.watch(ctx, cancel) })
	if err := s.work(ctx); err != nil {
		return interruption(ctx, err)
	}
	if s.options.Once {
		return nil
	}
	s.screen.next(s.next(ctx))
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) && !errors.Is(cause, errGoRunGone) && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// interruption tells the end of ctx from failures that follow from it.
func interruption(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// prepare does what needs no server: it finds out early what is missing.
func (s *starter) prepare(ctx context.Context) (err error) {
	if s.folder, err = openFolder(s.options.CacheDir); err != nil {
		return err
	}
	s.onStop("", time.Second, func(context.Context) error { return s.folder.close() })
	s.log = s.folder.logger
	if s.spec, err = s.loadSpec(); err != nil {
		return err
	}
	if s.spec.Pool.Name != exampleName {
		return nil
	}
	library, err := codemetrics.StandardLibrary(ctx)
	if err != nil {
		return err
	}
	s.library = &library
	return nil
}

func (s *starter) bringUp(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.startServer, s.startAgent, s.startPool} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watch ends everything when a part that this process runs has ended by itself.
func (s *starter) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	var serverEnded <-chan struct{}
	if s.server != nil {
		serverEnded = s.server.Done()
	}
	select {
	case <-ctx.Done():
	case err := <-s.agent.Failed():
		cancel(fmt.Errorf("the agent cannot go on: %w", err))
	case <-serverEnded:
		cancel(fmt.Errorf("the Temporal server has ended; start anew. Its last words, from %s:\n%s", s.folder.serverLog, s.server.LogTail()))
	}
}

// work runs the job, if there is one for the pool.
func (s *starter) work(ctx context.Context) error {
	if s.library == nil {
		s.screen.line("Pool %s is no %s, so the example's job is left out.", s.spec.Pool.Name, exampleName)
		return nil
	}
	return s.measure(ctx)
}

// stopAll stops what was started, the newest first. It goes on where one part fails.
func (s *starter) stopAll() error {
	var failures error
	for len(s.stops) > 0 {
		last := s.stops[len(s.stops)-1]
		s.stops = s.stops[:len(s.stops)-1]
		if last.what != "" {
			s.screen.line("Stopping %s.", last.what)
		}
		ctx, cancel := context.WithTimeout(context.Background(), last.limit)
		if err := last.end(ctx); err != nil {
			failures = errors.Join(failures, fmt.Errorf("stop %s: %w", last.what, err))
		}
		cancel()
	}
	return failures
}
