package worker

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/workflows/host"
)

// newTestServer starts a Temporal server, and returns what connects to it.
func newTestServer(ctx context.Context, t *testing.T) (*devserver.Server, func(...grpc.DialOption) client.Client) {
	t.Helper()
	server, err := devserver.Start(ctx, devserver.Options{DBFile: filepath.Join(t.TempDir(),
		"temporal.db"), UIPort: devserver.NoUI, Progress: func(text string) { t.Log(text) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	return server, func(options ...grpc.DialOption) client.Client {
		c, err := client.DialContext(ctx, client.Options{
			HostPort: server.Address(), Namespace: server.Namespace(), Logger: quiet,
			ConnectionOptions: client.ConnectionOptions{DialOptions: options},
		})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
}

// serverWait bounds a wait for a server that may have to be downloaded and may be slow; only a failing test takes so
// long.
const serverWait = 5 * time.Minute

// newTestMembership is that of the agent of host h, which joins through the connection.
func newTestMembership(t *testing.T, connection client.Client, namespace string) *membership {
	t.Helper()
	temporal := tempool.NewClient(connection, namespace)
	t.Cleanup(temporal.Close)
	m := &membership{
		client: temporal, announce: temporal.JoinHost, hostID: "h", log: slog.New(slog.DiscardHandler),
		report: func() api.HostHeartbeat { return api.HostHeartbeat{} },
		newWorker: func(queue string) sdkworker.Worker {
			return sdkworker.New(connection, queue, epochOptions(1))
		},
		remember: func(int64) {}, drain: func(bool) {}, lost: func() { t.Error("the processes are killed") },
		fail:    func(err error) { t.Error(err) },
		request: api.JoinRequest{Instance: "i", StateID: "l"},
	}
	t.Cleanup(func() { // the SDK does not wait for one that makes a large heartbeat on a busy machine
		require.Eventually(t, func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.living == 0
		}, serverWait, 10*time.Millisecond, "its liveness ends")
	})
	return m
}

// startHostWorkflows runs the workflows of hosts until the test ends.
func startHostWorkflows(t *testing.T, connection client.Client) {
	t.Helper()
	workflows := sdkworker.New(connection, api.TaskQueue, sdkworker.Options{})
	workflows.RegisterWorkflowWithOptions(host.Workflow, workflow.RegisterOptions{Name: api.WorkflowHost})
	require.NoError(t, workflows.Start())
	t.Cleanup(workflows.Stop)
}

// slowServer stands between an agent and Temporal like a server that does not answer for a while: it leaves the first
// heartbeat unanswered, and delivers the end of the activity, which follows, only after the agent has joined again.
type slowServer struct {
	heartbeats atomic.Int64
	joins      atomic.Int64
	joined     chan struct{} // closed once the agent has joined again
}

func (s *slowServer) intercept(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn,
	next grpc.UnaryInvoker, options ...grpc.CallOption) error {
	switch request.(type) {
	case *workflowservice.RecordActivityTaskHeartbeatRequest:
		if s.heartbeats.Add(1) == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
	case *workflowservice.RespondActivityTaskFailedRequest, *workflowservice.RespondActivityTaskCanceledRequest:
		select {
		case <-s.joined:
		case <-ctx.Done():
			return ctx.Err()
		}
	case *workflowservice.ExecuteMultiOperationRequest: // a join
		err := next(ctx, method, request, reply, cc, options...)
		if err == nil && s.joins.Add(1) == 2 {
			close(s.joined)
		}
		return err
	}
	return next(ctx, method, request, reply, cc, options...)
}

func TestAHostWhoseAgentJoinsBeforeItsLivenessHasEndedIsNotLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), serverWait)
	defer cancel()
	server, dial := newTestServer(ctx, t)
	direct := dial()
	startHostWorkflows(t, direct)
	slow := &slowServer{joined: make(chan struct{})}
	m := newTestMembership(t, dial(grpc.WithChainUnaryInterceptor(slow.intercept)), server.Namespace())
	require.NoError(t, m.start(ctx))
	t.Cleanup(func() { m.leave(api.LeaveRequest{}) })

	var queues []string // of the liveness activities
	require.Eventually(t, func() bool {
		queues = nil
		history := direct.GetWorkflowHistory(ctx, api.HostWorkflowID("h"), "", false,
			enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for history.HasNext() {
			event, err := history.Next()
			if err != nil {
				return false
			}
			scheduled := event.GetActivityTaskScheduledEventAttributes()
			if scheduled.GetActivityType().GetName() == api.ActivityHostLiveness {
				queues = append(queues, scheduled.GetTaskQueue().GetName())
			}
		}
		return len(queues) >= 2
	}, serverWait, 50*time.Millisecond, "no liveness follows the one that ended")
	for _, queue := range queues {
		require.Equal(t, api.HostEpochQueue("h", 1), queue, "the host keeps its epoch")
	}
}
