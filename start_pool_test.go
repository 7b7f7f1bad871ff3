package tempool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// withoutOperator is a Temporal client that may not use the operator's service.
type withoutOperator struct {
	client.Client
	operatorservice.OperatorServiceClient
	started []api.PoolStart
}

func (w *withoutOperator) OperatorService() operatorservice.OperatorServiceClient { return w }

func (w *withoutOperator) ListSearchAttributes(context.Context, *operatorservice.ListSearchAttributesRequest,
	...grpc.CallOption) (*operatorservice.ListSearchAttributesResponse, error) {
	return nil, serviceerror.NewPermissionDenied("no operator rights", "")
}

func (w *withoutOperator) ExecuteWorkflow(_ context.Context, _ client.StartWorkflowOptions, _ any,
	args ...any) (client.WorkflowRun, error) {
	w.started = append(w.started, args[0].(api.PoolStart))
	return nil, nil
}

func TestAPoolStartsWhereSearchAttributesCannotBeListed(t *testing.T) {
	temporal := &withoutOperator{}
	c := &Client{temporal: temporal}
	s := spec.Default()
	s.Pool.Name, s.Pool.Command = "hello", []string{"true"}
	require.NoError(t, c.StartPool(t.Context(), api.PoolStart{Pool: "hello", Spec: s}))
	require.Len(t, temporal.started, 1)
	require.False(t, temporal.started[0].Searchable)
}
