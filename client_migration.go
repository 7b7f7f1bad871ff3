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

// Migration is a session workflow under way: one that moves sessions from workers to workers. It goes on whether anybody waits or not.
type Migration struct {
	client     *Client
	workflowID string
	runID      string
	what       string
}

// WorkflowID is the ID of its workflow, by which Temporal's tools find it.
func (m *Migration) WorkflowID() string { return m.workflowID }

// Migrate begins to move the session to the worker that the request names; its pool and session are s's. A session that is on its way already
// is CodeBusy.
func (s *Session) Migrate(ctx context.Context, request api.MigrateSessionRequest) (*Migration, error) {
	p := s.pool
	request.Pool, request.Session = p.name, s.id
	return p.migration(ctx, api.MigrateSessionWorkflowID(p.name, s.id), api.WorkflowMigrateSession, request, fmt.Sprintf("move session %s to %s", s.id, request.To))
}

// RebalanceSessions begins to move as few of the pool's sessions as make their distribution what the weights say. While a rebalancing of
// the pool is under way, another is CodeBusy. The request's pool is p's.
func (p *Pool) RebalanceSessions(ctx context.Context, request api.RebalanceSessionsRequest) (*Migration, error) {
	request.Pool = p.name
	return p.migration(ctx, api.RebalanceSessionsWorkflowID(p.name), api.WorkflowRebalanceSessions, request, "distribute the sessions of pool "+p.name+" anew")
}

// Evacuate begins to move all sessions of a worker to the others of the pool. While that is under way, another evacuation of the worker is
// CodeBusy. It fails with worker_not_found, pool_not_found and draining, too.
func (p *Pool) Evacuate(ctx context.Context, request api.EvacuateRequest) (*Migration, error) {
	var started api.EvacuateStarted
	if err := p.update(ctx, api.UpdateEvacuate, request, &started); err != nil {
		return nil, err
	}
	return &Migration{p.client, started.WorkflowID, started.RunID, "evacuate " + api.WorkerName(p.name, request.Worker)}, nil
}

func (p *Pool) migration(ctx context.Context, id, workflow string, request any, what string) (*Migration, error) {
	run, err := p.client.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: api.TaskQueue, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true, StaticSummary: what,
	}, workflow, request)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &exists) {
		return nil, api.Errorf(api.CodeBusy, "%s: that is under way already; wait for it, or cancel the workflow %s", what, id)
	}
	if err != nil {
		return nil, p.client.fromTemporal(err, what)
	}
	return &Migration{p.client, id, run.GetRunID(), what}, nil
}

// Progress says how far it is. It is also answered when it is over.
func (m *Migration) Progress(ctx context.Context) (progress api.SessionProgress, err error) {
	err = m.client.query(ctx, m.workflowID, api.QueryProgress, &progress)
	return progress, err
}

// Wait waits until it is over and says what has moved. A failure has the code of what went wrong; CodeCancelled is for one that somebody cancelled
// or terminated. The context ends the waiting alone.
func (m *Migration) Wait(ctx context.Context) (moves api.SessionMoves, err error) {
	err = m.client.temporal.GetWorkflow(ctx, m.workflowID, m.runID).Get(ctx, &moves)
	var cancelled *temporal.CanceledError
	var terminated *temporal.TerminatedError
	switch {
	case err == nil:
		return moves, nil
	case ctx.Err() != nil:
		return moves, ctx.Err()
	case errors.As(err, &cancelled):
		if cancelled.HasDetails() {
			_ = cancelled.Details(&moves) // without them, what has moved is not known
		}
		return moves, api.Errorf(api.CodeCancelled, "%s: it was cancelled; sessions that were on their way are where they were", m.what)
	case errors.As(err, &terminated):
		return moves, api.Errorf(api.CodeCancelled, "%s: it was terminated; run it again", m.what)
	}
	return moves, m.client.fromTemporal(err, m.what)
}
