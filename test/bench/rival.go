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

// roadrunner is RoadRunner's pool in a process of its own, built from a module of its own.
type roadrunner struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *json.Decoder
}

func (b *bench) startRoadrunner(ctx context.Context, workers int) (*roadrunner, error) {
	source := filepath.Join(b.root, "test", "bench", "roadrunner")
	program := filepath.Join(b.dir, "roadrunner")
	if _, err := output(ctx, source, "go", "build", "-o", program, "."); err != nil {
		return nil, err
	}
	r := &roadrunner{cmd: exec.Command(program, strconv.Itoa(workers), b.python, filepath.Join(source, "worker.py"))}
	answers, err := r.cmd.StdoutPipe()
	if err == nil {
		r.orders, err = r.cmd.StdinPipe()
	}
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start RoadRunner's pool: %w", err)
	}
	r.answers = json.NewDecoder(answers)
	return r, nil
}

// perSecond has RoadRunner measured for a span.
func (r *roadrunner) perSecond(callers, bytes int, span time.Duration) (float64, error) {
	err := json.NewEncoder(r.orders).Encode(map[string]any{"callers": callers, "bytes": bytes, "ms": span.Milliseconds()})
	var answer struct {
		PerSecond float64 `json:"per_second"`
	}
	if err == nil {
		err = r.answers.Decode(&answer)
	}
	if err != nil {
		return 0, fmt.Errorf("measure RoadRunner's pool: %w", err)
	}
	return answer.PerSecond, nil
}

// stop ends RoadRunner and its workers.
func (r *roadrunner) stop() error {
	force := time.AfterFunc(actorPatience, func() { _ = r.cmd.Process.Kill() })
	defer force.Stop()
	return errors.Join(r.orders.Close(), r.cmd.Wait())
}
