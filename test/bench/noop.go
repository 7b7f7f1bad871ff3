package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool"
)

// The no-op workflow measures the cost of Temporal itself, for comparison with leases.
const (
	noopQueue    = "bench-noop"
	noopWorkflow = "Noop"
	noopUpdate   = "noop-update"
	noopSignal   = "noop-signal"
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

// serveNoop runs a Temporal worker for Noop and Floor until the process is signalled.
func serveNoop(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := tempool.Dial(ctx, tempool.Options{Address: address, Logger: silentLog()})
	if err != nil {
		return err
	}
	defer client.Close()
	w := sdkworker.New(client.Temporal(), noopQueue, sdkworker.Options{})
	w.RegisterWorkflowWithOptions(Noop, workflow.RegisterOptions{Name: noopWorkflow})
	w.RegisterWorkflowWithOptions(Floor, workflow.RegisterOptions{Name: floorWorkflow})
	w.RegisterWorkflowWithOptions(FloorChild, workflow.RegisterOptions{Name: floorChild})
	floor := newFloorProcesses()
	w.RegisterActivityWithOptions(floor.Activity, activity.RegisterOptions{Name: floorActivity})
	w.RegisterActivityWithOptions(floor.End, activity.RegisterOptions{Name: floorEnd})
	if err := w.Start(); err != nil {
		return fmt.Errorf("poll %s: %w", noopQueue, err)
	}
	<-ctx.Done()
	w.Stop()
	return nil
}

// startNoop starts a no-op workflow and sends it a first update.
func (b *bench) startNoop(ctx context.Context, id string) error {
	_, err := b.client.Temporal().ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: noopQueue},
		noopWorkflow)
	if err != nil {
		return fmt.Errorf("start the no-op workflow %s: %w", id, err)
	}
	return b.updateNoop(ctx, id)
}

func (b *bench) updateNoop(ctx context.Context, id string) error {
	handle, err := b.client.Temporal().UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: noopUpdate, UpdateID: uuid.NewString(), WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	if err != nil {
		return fmt.Errorf("update the no-op workflow %s: %w", id, err)
	}
	return nil
}

func (b *bench) signalNoop(ctx context.Context, id string) error {
	if err := b.client.Temporal().SignalWorkflow(ctx, id, "", noopSignal, nil); err != nil {
		return fmt.Errorf("signal the no-op workflow %s: %w", id, err)
	}
	return nil
}

func (b *bench) endNoop(ctx context.Context, id string) error {
	if err := b.client.Temporal().TerminateWorkflow(ctx, id, "", "measured"); err != nil {
		return fmt.Errorf("terminate the no-op workflow %s: %w", id, err)
	}
	return nil
}
