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
	killsDuringCall = 20
	// killDuringCallTarget limits the time from the kill to the caller's error.
	killDuringCallTarget = 100.0 // ms
)

// measureCut kills a worker during a call, several times, and measures the time until the caller gets the error.
func measureCut(ctx context.Context, b *bench) error {
	agent, err := b.localAgent(ctx, "cut", "")
	if err != nil {
		return err
	}
	s := b.withLongLeases("cut", 1, 1)
	s.Recovery.HealthyReset = spec.Duration(healthyReset)
	pool, err := b.startPool(ctx, s)
	if err != nil {
		return err
	}
	latency := b.result.row("SIGKILL during a call until the caller's error", "ms")
	for range killsDuringCall {
		took, err := killDuringCall(ctx, agent.Gateway(), pool)
		if err != nil {
			return err
		}
		latency.add(milliseconds(took))
		if err := wait(ctx, healthyReset+100*time.Millisecond); err != nil {
			return err
		}
	}
	b.result.atMost("SIGKILL during a call until the caller's error, maximum", latency.Max, killDuringCallTarget, "ms")
	return nil
}

// killDuringCall starts a call that streams its worker's PID, and kills that process.
func killDuringCall(ctx context.Context, g *gateway.Gateway, pool *tempool.Pool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	var killedAt time.Time
	_, err := g.CallPool(ctx, pool.Name(), dispatch.Request{Method: "cut", OnChunk: func(chunk []byte) error {
		pid, err := strconv.Atoi(string(chunk))
		if err != nil {
			return fmt.Errorf("invalid PID %q from the worker: %w", chunk, err)
		}
		killedAt = time.Now()
		return syscall.Kill(pid, syscall.SIGKILL)
	}})
	took := time.Since(killedAt)
	if !errors.Is(err, api.ErrWorkerCrashed) || killedAt.IsZero() {
		return 0, fmt.Errorf("call of a killed worker: got error %w, want %s", err, api.CodeWorkerCrashed)
	}
	return took, nil
}
