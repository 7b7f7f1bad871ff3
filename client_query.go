package tempool

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

const (
	// queryTimeout bounds a query; without an agent nobody answers.
	queryTimeout = 10 * time.Second
	// queryPatience is how long the first answer may take before it is asked for again. A server loses an answer now and then: the one
	// of an agent that leaves, and the one that comes before the server has noted down who waits for it.
	queryPatience = time.Second
)

// query asks a workflow, be it one that has ended.
func (c *Client) query(ctx context.Context, workflowID, name string, result any) error {
	_, err := c.queryIf(ctx, workflowID, name, enums.QUERY_REJECT_CONDITION_NONE, result)
	return err
}

// queryIf asks a workflow unless it is in the condition to reject, which is no error. Each further try waits twice as long as the one
// before, for the answer may not have been lost but slow.
func (c *Client) queryIf(ctx context.Context, workflowID, name string, reject enums.QueryRejectCondition, result any) (rejected bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	request := &client.QueryWorkflowWithOptionsRequest{WorkflowID: workflowID, QueryType: name, QueryRejectCondition: reject}
	patience := queryPatience
	answer, err := c.queryOnce(ctx, request, patience)
	for isTimeout(err) && ctx.Err() == nil && patience < queryTimeout {
		patience *= 2
		answer, err = c.queryOnce(ctx, request, patience)
	}
	if err == nil && answer.QueryRejected != nil {
		return true, nil
	}
	if err == nil {
		err = answer.QueryResult.Get(result)
	}
	return false, c.fromTemporal(err, "ask "+workflowID+" for its "+name)
}

// queryOnce waits for an answer for as long as patience. The SDK gives a request half of the time that its context has left, at least
// a second: so that context lasts twice as long.
func (c *Client) queryOnce(ctx context.Context, request *client.QueryWorkflowWithOptionsRequest, patience time.Duration) (*client.QueryWorkflowWithOptionsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	return c.temporal.QueryWorkflowWithOptions(ctx, request)
}

// isTimeout reports whether an error says that nobody answered in time.
func isTimeout(err error) bool {
	var deadline *serviceerror.DeadlineExceeded
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &deadline)
}
