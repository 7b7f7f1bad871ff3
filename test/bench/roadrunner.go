package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// roadrunner is RoadRunner's pool in a separate process, built from a separate module.
type roadrunner struct {
	requests *json.Encoder
	results  *json.Decoder
}

// startRoadrunner starts the pool. cores is 0 or the number of cores over which its workers are bound, one core each.
func (b *bench) startRoadrunner(ctx context.Context, workers, cores int) (*roadrunner, error) {
	source := filepath.Join(b.root, "test", "bench", "roadrunner")
	program := filepath.Join(b.dir, "roadrunner")
	if _, err := output(ctx, source, "go", "build", "-o", program, "."); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, strconv.Itoa(workers), strconv.Itoa(cores), b.python, filepath.Join(source, "worker.py"))
	results, errOut := cmd.StdoutPipe()
	requests, errIn := cmd.StdinPipe()
	if err := errors.Join(errOut, errIn); err != nil {
		return nil, fmt.Errorf("start RoadRunner's pool: %w", err)
	}
	r := &roadrunner{requests: json.NewEncoder(requests), results: json.NewDecoder(results)}
	return r, b.launch("RoadRunner's pool", cmd, true, requests.Close)
}

// perSecond measures RoadRunner for a span and returns the calls per second.
func (r *roadrunner) perSecond(callers, bytes int, span time.Duration) (float64, error) {
	err := r.requests.Encode(map[string]any{"callers": callers, "bytes": bytes, "ms": span.Milliseconds()})
	var result struct {
		PerSecond float64 `json:"per_second"`
	}
	if err == nil {
		err = r.results.Decode(&result)
	}
	if err != nil {
		return 0, fmt.Errorf("measure RoadRunner's pool: %w", err)
	}
	return result.PerSecond, nil
}
