package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// localAgent starts an agent within this process, for in-process calls. listen is its gateway's TCP address.
func (b *bench) localAgent(ctx context.Context, hostID, listen string) (*worker.Agent, error) {
	if err := b.temporal(ctx); err != nil {
		return nil, err
	}
	agent, err := worker.Start(ctx, worker.Config{
		Address: b.server.Address(), HostID: hostID, StateDir: filepath.Join(b.dir, hostID), Listen: listen,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("start an agent in this process: %w", err)
	}
	b.atEnd(func(context.Context) error { return agent.Stop() })
	return agent, nil
}

// echoInflight returns the spec of an echo pool whose workers take so many calls at a time.
func (b *bench) echoInflight(name string, size, inflight int) spec.Spec {
	s := b.echo(name, size)
	s.Pool.MaxInflight = inflight
	return s
}

// awaitCalls calls until size workers have answered.
func awaitCalls(ctx context.Context, call func(context.Context) (*pool.Response, error), size int) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		failed error
		served = map[string]bool{}
	)
	answered := func(response *pool.Response, err error) (more bool) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = fmt.Errorf("%d of %d workers answered: %w", len(served), size, err)
		} else {
			served[response.Worker] = true
		}
		return failed == nil && len(served) < size
	}
	for range callers {
		group.Go(func() {
			for answered(call(ctx)) {
			}
		})
	}
	group.Wait()
	return failed
}
