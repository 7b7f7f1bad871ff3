package worker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"

	"github.com/tempool/tempool/api"
)

// A message that Temporal has taken, while the agent waited for the answer in vain, is sent again, and must not count
// twice: three failed probes replace a process.
func TestAMessageWhoseAnswerWasLostArrivesOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), serverWait)
	defer cancel()
	server, dial := newTestServer(ctx, t)
	var sent atomic.Int64
	lossy := dial(grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any,
		cc *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := next(ctx, method, request, reply, cc, options...)
		if _, signal := request.(*workflowservice.SignalWorkflowExecutionRequest); signal && err == nil && sent.Add(1) == 1 {
			<-ctx.Done() // the answer is lost
			return ctx.Err()
		}
		return err
	}))
	_, err := lossy.ExecuteWorkflow(ctx,
		client.StartWorkflowOptions{ID: api.WorkerWorkflowID("p", 1), TaskQueue: "nobody"}, "Worker")
	require.NoError(t, err)
	o := newOutbox(signalWith(lossy, server.Namespace(), "agent", converter.GetDefaultDataConverter()), nil,
		slog.New(slog.DiscardHandler))
	o.notify("p/1", "run", exited(1))
	closeOutbox(t, o)
	require.EqualValues(t, 2, sent.Load())
	var arrived []api.ProcessEvents
	for history := lossy.GetWorkflowHistory(ctx, api.WorkerWorkflowID("p", 1), "", false,
		enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); history.HasNext(); {
		event, err := history.Next()
		require.NoError(t, err)
		if signal := event.GetWorkflowExecutionSignaledEventAttributes(); signal != nil {
			var message api.ProcessEvents
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(signal.GetInput(), &message))
			arrived = append(arrived, message)
		}
	}
	require.Equal(t, []api.ProcessEvents{{RunID: "run", Events: []api.ProcessEvent{exited(1)}}}, arrived)
}
