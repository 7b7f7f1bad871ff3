// Package workflows registers the workflows of Tempool: pools, workers, session moves, and single calls.
//
// The workflows are deterministic shells: lifecycle decides which transition is legal, policy decides what follows a
// failure, and everything that touches an operating system is an activity.
package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/host"
	"github.com/tempool/tempool/workflows/pool"
	"github.com/tempool/tempool/workflows/sessions"
	"github.com/tempool/tempool/workflows/sweeper"
	"github.com/tempool/tempool/workflows/worker"
)

// Registry accepts workflow definitions: a Temporal worker or a replayer.
type Registry interface {
	RegisterWorkflowWithOptions(definition any, options workflow.RegisterOptions)
}

// definitions are the workflows by their name in api.
var definitions = map[string]any{
	api.WorkflowPool:              pool.Workflow,
	api.WorkflowWorker:            worker.Workflow,
	api.WorkflowMigrateSession:    sessions.Migrate,
	api.WorkflowEvacuateWorker:    sessions.Evacuate,
	api.WorkflowRebalanceSessions: sessions.Rebalance,
	api.WorkflowScale:             Scale,
	api.WorkflowExecute:           Execute,
	api.WorkflowHost:              host.Workflow,
	api.WorkflowSweeper:           sweeper.Workflow,
}

// Register adds every workflow to r under its name in api.
func Register(r Registry) {
	for name, definition := range definitions {
		r.RegisterWorkflowWithOptions(definition, workflow.RegisterOptions{Name: name})
	}
}
