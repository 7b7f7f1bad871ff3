package tempool

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
)

// StartPool starts a pool. It returns when Temporal has recorded the start; Pool.Status shows the workers. A running
// pool of the same name is CodePoolExists, an invalid spec CodeInvalid. Where the search attributes cannot be listed,
// the pool starts without them.
func (c *Client) StartPool(ctx context.Context, start api.PoolStart) error {
	if err := start.Spec.Validate(); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	missing, err := c.MissingSearchAttributes(ctx)
	start.Searchable = err == nil && len(missing) == 0 // a client may lack the right to list them
	options := client.StartWorkflowOptions{
		ID: api.PoolWorkflowID(start.Pool), TaskQueue: api.TaskQueue,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            "pool " + start.Pool,
	}
	if start.Searchable {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(api.SearchAttributePool).ValueSet(start.Pool))
	}
	_, err = c.temporal.ExecuteWorkflow(ctx, options, api.WorkflowPool, start)
	if _, ok := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); ok {
		return api.Errorf(api.CodePoolExists, "pool %s is already running; change it with tempool pool apply, or stop "+
			"it first",
			start.Pool)
	}
	return c.fromTemporal(err, "start pool "+start.Pool)
}

// ListPools returns the names of the running pools.
func (c *Client) ListPools(ctx context.Context) ([]string, error) {
	ids, err := c.listWorkflows(ctx, fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", api.WorkflowPool))
	var pools []string
	for _, id := range ids {
		pools = append(pools, strings.TrimPrefix(id, api.PoolWorkflowID("")))
	}
	return pools, err
}
