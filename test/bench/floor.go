package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/spec"
)

// The floor is what Temporal itself needs for as many child workflows that run one activity each, and nothing else; or
// an activity that starts a process without Tempool.
const (
	floorWorkflow = "Floor"
	floorChild    = "FloorChild"
	floorActivity = "FloorActivity"
	floorEnd      = "FloorEnd"
	// floorBatch is the number of children that one workflow task starts, as many as a pool starts.
	floorBatch = 50
)

// Floor starts n children, in batches, waits for them, and returns how long that took. Each starts the program, unless
// it is "".
func Floor(ctx workflow.Context, n int, program string) (took time.Duration, err error) {
	began := workflow.Now(ctx)
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{})
	var children []workflow.ChildWorkflowFuture
	for len(children) < n {
		for range min(floorBatch, n-len(children)) {
			children = append(children, workflow.ExecuteChildWorkflow(ctx, floorChild, program))
		}
		for _, child := range children[max(0, len(children)-floorBatch):] {
			if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
				return 0, err
			}
		}
	}
	for _, child := range children {
		if err := child.Get(ctx, nil); err != nil {
			return 0, err
		}
	}
	took = workflow.Now(ctx).Sub(began)
	return took, floorRun(ctx, floorEnd)
}

// FloorChild runs one activity.
func FloorChild(ctx workflow.Context, program string) error {
	return floorRun(ctx, floorActivity, program)
}

func floorRun(ctx workflow.Context, name string, args ...any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: waitTimeout})
	return workflow.ExecuteActivity(ctx, name, args...).Get(ctx, nil)
}

// floorProcesses are the processes that activities have started, one per core at a time, which is also an agent's
// default.
type floorProcesses struct {
	turns chan struct{}
	mu    sync.Mutex
	all   []*bareWorker
}

func newFloorProcesses() *floorProcesses {
	return &floorProcesses{turns: make(chan struct{}, runtime.NumCPU())}
}

// Activity starts a program and waits for its hello; without one it does nothing.
func (f *floorProcesses) Activity(ctx context.Context, program string) error {
	if program == "" {
		return nil
	}
	f.turns <- struct{}{}
	defer func() { <-f.turns }()
	s := spec.Default()
	s.Pool.Name, s.Pool.Command = "floor", []string{program}
	started, err := spawnBare(ctx, s)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, started)
	return nil
}

// End ends all processes.
func (f *floorProcesses) End(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.all {
		one.kill()
	}
	f.all = nil
	return nil
}

// runFloor returns how long n children took, each of which starts the program, unless it is "".
func (b *bench) runFloor(ctx context.Context, n int, program string) (took time.Duration, err error) {
	run, err := b.client.Temporal().ExecuteWorkflow(ctx,
		client.StartWorkflowOptions{ID: "floor-" + uuid.NewString(), TaskQueue: noopQueue}, floorWorkflow, n, program)
	if err == nil {
		err = run.Get(ctx, &took)
	}
	if err != nil {
		return 0, fmt.Errorf("run %d child workflows: %w", n, err)
	}
	return took, nil
}
