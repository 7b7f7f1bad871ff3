package tempool

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
)

// fakeTemporal is a Temporal client that answers queries and updates as a test says.
type fakeTemporal struct {
	client.Client
	query  func(ctx context.Context) (answer any, err error)
	update func(ctx context.Context, o client.UpdateWorkflowOptions) error
	signal func(workflowID, name string, message any) // nil ignores signals
}

func (f *fakeTemporal) QueryWorkflowWithOptions(ctx context.Context,
	_ *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	answer, err := f.query(ctx)
	if err != nil {
		return nil, err
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(answer)
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

func (f *fakeTemporal) UpdateWorkflow(ctx context.Context,
	o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	return nil, f.update(ctx, o)
}

func (f *fakeTemporal) SignalWorkflow(_ context.Context, workflowID, _, name string, message any) error {
	if f.signal != nil {
		f.signal(workflowID, name, message)
	}
	return nil
}

func (f *fakeTemporal) Close() {}
