package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool"
)

// What these workflows cost is Temporal's own share: Noop for leases, Floor for starts.
const (
	noopQueue    = "bench-noop"
	noopWorkflow = "Noop"
	noopUpdate   = "noop-update"
	noopSignal   = "noop-signal"

	floorWorkflow = "Floor"
	floorChild    = "FloorChild"
	floorActivity = "FloorActivity"
	// floorBatch is the number of children that one workflow task starts, as many as a pool starts.
	floorBatch = 50
)

// Noop accepts updates and signals, and continues as new when Temporal suggests it.
func Noop(ctx workflow.Context) error {
	if err := workflow.SetUpdateHandler(ctx, noopUpdate, func(workflow.Context) error { return nil }); err != nil {
		return err
	}
	signals := workflow.GetSignalChannel(ctx, noopSignal)
	for {
		signals.Receive(ctx, nil)
		for signals.ReceiveAsync(nil) { // an unread signal would be lost
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() && workflow.AllHandlersFinished(ctx) {
			return workflow.NewContinueAsNewError(ctx, noopWorkflow)
		}
	}
}

// Floor starts n children, in batches, waits for them, and returns how long that took.
func Floor(ctx workflow.Context, n int) (took time.Duration, err error) {
	began := workflow.Now(ctx)
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{})
	var children []workflow.ChildWorkflowFuture
	for len(children) < n {
		for range min(floorBatch, n-len(children)) {
			children = append(children, workflow.ExecuteChildWorkflow(ctx, floorChild))
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
	return workflow.Now(ctx).Sub(began), nil
}

// FloorChild runs one activity, which does nothing.
func FloorChild(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: waitTimeout})
	return workflow.ExecuteActivity(ctx, floorActivity).Get(ctx, nil)
}

// noopEnv has the address of Temporal for a child process of this program that only runs serveNoop.
const noopEnv = "TEMPOOL_BENCH_NOOP"

// startNoopWorker starts a process for Noop and Floor: the workflows of an agent are in another process, too.
func (b *bench) startNoopWorker() {
	cmd := exec.Command(must(os.Executable()))
	cmd.Env = append(os.Environ(), noopEnv+"="+b.server.Address())
	b.launch("noop", cmd, true, terminate(cmd))
}

// serveNoop runs a Temporal worker for Noop and Floor until ctx ends.
func serveNoop(ctx context.Context, address string) error {
	client, err := tempool.Dial(ctx, tempool.Options{Address: address, Logger: silentLog()})
	if err != nil {
		return err
	}
	defer client.Close()
	w := sdkworker.New(client.Temporal(), noopQueue, sdkworker.Options{})
	w.RegisterWorkflowWithOptions(Noop, workflow.RegisterOptions{Name: noopWorkflow})
	w.RegisterWorkflowWithOptions(Floor, workflow.RegisterOptions{Name: floorWorkflow})
	w.RegisterWorkflowWithOptions(FloorChild, workflow.RegisterOptions{Name: floorChild})
	w.RegisterActivityWithOptions(func(context.Context) error { return nil },
		activity.RegisterOptions{Name: floorActivity})
	if err := w.Start(); err != nil {
		return fmt.Errorf("poll %s: %w", noopQueue, err)
	}
	<-ctx.Done()
	w.Stop()
	return nil
}

// startNoop starts a no-op workflow, which ends with the benchmark, and sends it a first update.
func (b *bench) startNoop(ctx context.Context, id string) {
	temporal := b.client.Temporal()
	must(temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: noopQueue}, noopWorkflow))
	b.atEnd(func(ctx context.Context) error { return temporal.TerminateWorkflow(ctx, id, "", "measured") })
	check(b.updateNoop(ctx, id))
}

func (b *bench) updateNoop(ctx context.Context, id string) error {
	handle, err := b.client.Temporal().UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: noopUpdate, UpdateID: uuid.NewString(), WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	return err
}

// runFloor returns how long n child workflows took.
func (b *bench) runFloor(ctx context.Context, n int) (took time.Duration) {
	run := must(b.client.Temporal().ExecuteWorkflow(ctx,
		client.StartWorkflowOptions{ID: "floor-" + uuid.NewString(), TaskQueue: noopQueue}, floorWorkflow, n))
	check(run.Get(ctx, &took))
	return took
}
