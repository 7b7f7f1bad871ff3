package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// roadrunner is RoadRunner's pool in a separate process, built from a separate module.
type roadrunner struct {
	cmd      *exec.Cmd
	requests io.WriteCloser
	results  *json.Decoder
}

func (b *bench) startRoadrunner(ctx context.Context, workers int) (*roadrunner, error) {
	source := filepath.Join(b.root, "test", "bench", "roadrunner")
	program := filepath.Join(b.dir, "roadrunner")
	if _, err := output(ctx, source, "go", "build", "-o", program, "."); err != nil {
		return nil, err
	}
	r := &roadrunner{cmd: exec.Command(program, strconv.Itoa(workers), b.python, filepath.Join(source, "worker.py"))}
	stdout, err := r.cmd.StdoutPipe()
	if err == nil {
		r.requests, err = r.cmd.StdinPipe()
	}
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start RoadRunner's pool: %w", err)
	}
	r.results = json.NewDecoder(stdout)
	return r, nil
}

// perSecond measures RoadRunner for a span and returns the calls per second.
func (r *roadrunner) perSecond(callers, bytes int, span time.Duration) (float64, error) {
	err := json.NewEncoder(r.requests).Encode(map[string]any{"callers": callers, "bytes": bytes, "ms": span.Milliseconds()})
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

// stop ends RoadRunner and its workers.
func (r *roadrunner) stop() error {
	force := time.AfterFunc(stopTimeout, func() { _ = r.cmd.Process.Kill() })
	defer force.Stop()
	return errors.Join(r.requests.Close(), r.cmd.Wait())
}
