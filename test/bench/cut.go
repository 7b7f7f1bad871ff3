package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/gateway/dispatch"
	"github.com/tempool/tempool/spec"
)

const (
	cuts = 20
	// cutTarget is how soon after its worker's death a caller has to know.
	cutTarget = 100.0 // ms
)

// measureCut kills a worker in mid-call, again and again, and takes the time until its caller is told.
func measureCut(ctx context.Context, b *bench) (err error) {
	agent, err := b.localAgent(ctx, "cut", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.Stop()) }()
	s := b.steady("cut", 1, 1)
	s.Recovery.HealthyReset = spec.Duration(healthyReset)
	pool, err := b.startPool(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPool(context.WithoutCancel(ctx), pool)) }()
	told := b.result.row("SIGKILL in mid-call until its caller has the error", "ms")
	for range cuts {
		took, err := cutOnce(ctx, agent.Gateway(), pool)
		if err != nil {
			return err
		}
		told.add(milliseconds(took))
		if err := wait(ctx, healthyReset+100*time.Millisecond); err != nil {
			return err
		}
	}
	b.result.atMost("a crash's error is with its caller, the latest of all", told.Max, cutTarget, "ms")
	return nil
}

// cutOnce has a call tell its worker's PID, and kills that.
func cutOnce(ctx context.Context, g *gateway.Gateway, pool *tempool.Pool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var killedAt time.Time
	_, err := g.CallPool(ctx, pool.Name(), dispatch.Request{Method: "cut", OnChunk: func(chunk []byte) error {
		pid, err := strconv.Atoi(string(chunk))
		if err != nil {
			return fmt.Errorf("the worker names %q as its PID: %w", chunk, err)
		}
		killedAt = time.Now()
		return syscall.Kill(pid, syscall.SIGKILL)
	}})
	took := time.Since(killedAt)
	if !errors.Is(err, api.ErrWorkerCrashed) || killedAt.IsZero() {
		return 0, fmt.Errorf("a call whose worker was killed ended with %w, not with %s", err, api.CodeWorkerCrashed)
	}
	return took, nil
}
