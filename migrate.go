package tempool

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
)

// Migration is a workflow that moves sessions between workers. It continues whether or not the client waits for it.
type Migration struct {
	client     *Client
	workflowID string
	runID      string
	action     string // for errors
}

// WorkflowID returns the ID of the workflow, for Temporal's own tools.
func (m *Migration) WorkflowID() string { return m.workflowID }

// Migrate starts to move the session to the worker request.To; Migrate sets Pool and Session of the request. If the
// session is being moved already, it fails with CodeBusy.
func (s *Session) Migrate(ctx context.Context, request api.MigrateSessionRequest) (*Migration, error) {
	p := s.pool
	request.Pool, request.Session = p.name, s.id
	return p.startMigration(ctx, api.MigrateSessionWorkflowID(p.name, s.id), api.WorkflowMigrateSession, request,
		fmt.Sprintf("move session %s to %s", s.id, request.To))
}

// RebalanceSessions starts to move the fewest sessions that make the distribution match the weights; it sets Pool of
// the request. While another rebalancing of the pool is running, it fails with CodeBusy.
func (p *Pool) RebalanceSessions(ctx context.Context, request api.RebalanceSessionsRequest) (*Migration, error) {
	request.Pool = p.name
	return p.startMigration(ctx, api.RebalanceSessionsWorkflowID(p.name), api.WorkflowRebalanceSessions, request,
		"rebalance the sessions of pool "+p.name)
}

// Evacuate starts to move all sessions of a worker to the pool's other workers. While another evacuation of the worker
// is running, it fails with CodeBusy; other codes are worker_not_found, pool_not_found and draining.
func (p *Pool) Evacuate(ctx context.Context, request api.EvacuateRequest) (*Migration, error) {
	var started api.EvacuateStarted
	if err := p.update(ctx, api.UpdateEvacuate, request, &started); err != nil {
		return nil, err
	}
	return &Migration{p.client, started.WorkflowID, started.RunID, "evacuate " +
		api.WorkerName(p.name, request.Worker)}, nil
}

func (p *Pool) startMigration(ctx context.Context, id, workflow string, request any,
	action string) (*Migration, error) {
	run, err := p.client.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: api.TaskQueue, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true, StaticSummary: action,
	}, workflow, request)
	if _, ok := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); ok {
		return nil, api.Errorf(api.CodeBusy, "%s: already running; wait for it, or cancel the workflow %s", action, id)
	}
	if err != nil {
		return nil, p.client.fromTemporal(err, action)
	}
	return &Migration{p.client, id, run.GetRunID(), action}, nil
}

// Progress reports how far the migration is, even after its end.
func (m *Migration) Progress(ctx context.Context) (progress api.SessionProgress, err error) {
	err = m.client.query(ctx, m.workflowID, api.QueryProgress, &progress)
	return progress, err
}

// Wait waits for the end of the migration and returns what moved. A failure has the code of its cause; CodeCancelled
// means that the workflow was cancelled or terminated. The end of ctx ends only the waiting.
func (m *Migration) Wait(ctx context.Context) (moves api.SessionMoves, err error) {
	err = m.client.temporal.GetWorkflow(ctx, m.workflowID, m.runID).Get(ctx, &moves)
	var cancelled *temporal.CanceledError
	switch {
	case err == nil:
		return moves, nil
	case ctx.Err() != nil:
		return moves, ctx.Err()
	case errors.As(err, &cancelled):
		if cancelled.HasDetails() {
			_ = cancelled.Details(&moves) // unreadable details leave moves empty
		}
		return moves, api.Errorf(api.CodeCancelled, "%s: cancelled; sessions that were being moved stay where they were",
			m.action)
	case is[*temporal.TerminatedError](err):
		return moves, api.Errorf(api.CodeCancelled, "%s: terminated; run it again", m.action)
	}
	return moves, m.client.fromTemporal(err, m.action)
}
