package devserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
)

// fakeFolder makes the test binary a server program, whose processes behave as the names of files in that folder say,
// in alphabetical order. Each process removes its file.
const fakeFolder = "DEVSERVER_TEST_FAKE_FOLDER"

// fakeServer knows its namespace, and answers requests for workflows with an error.
type fakeServer struct {
	workflowservice.UnimplementedWorkflowServiceServer
	namespace, workflow error
	described           chan struct{} // receives after each answer about a workflow
}

func (s *fakeServer) DescribeNamespace(context.Context,
	*workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{}, serviceerror.ToStatus(s.namespace).Err()
}

func (s *fakeServer) DescribeWorkflowExecution(context.Context,
	*workflowservice.DescribeWorkflowExecutionRequest) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	defer func() { s.described <- struct{}{} }()
	return nil, serviceerror.ToStatus(s.workflow).Err()
}

// runFake is a process of the server program.
func runFake(folder string) int {
	files, err := os.ReadDir(folder)
	if err != nil || len(files) == 0 {
		return 1
	}
	behaviour := files[0].Name()
	_ = os.Remove(filepath.Join(folder, behaviour))
	unavailable := serviceerror.NewUnavailable("shard status unknown")
	broken := serviceerror.NewUnavailable("GetCurrentExecution operation failed. Error: " + interrupted)
	served := serviceerror.NewNotFound("no such workflow")
	fake := &fakeServer{workflow: served, described: make(chan struct{}, 1000)}
	announced := true
	switch behaviour[1:] {
	case "loses-namespaces":
		fake.namespace = broken
	case "loses-workflows":
		fake.workflow = broken
	case "exits-for-a-port":
		fmt.Println("listen tcp 127.0.0.1:40000: bind: address already in use")
		return 1
	case "exits-after-answers":
		announced = false
	case "has-no-shard":
		fake.workflow = unavailable
	}
	port := os.Args[slices.Index(os.Args, "--port")+1]
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if announced {
		fmt.Println("Server:  localhost:" + port)
	}
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, fake)
	go func() { _ = server.Serve(listener) }()
	for range 3 {
		<-fake.described
	}
	if fake.workflow == served && announced {
		select {} // until it is killed
	}
	fmt.Println("failed starting server")
	return 1
}

func startFake(t *testing.T, behaviours ...string) (*serverProcess, Options, error) {
	t.Helper()
	folder := t.TempDir()
	for i, behaviour := range behaviours {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprint(i)+behaviour), nil, 0o600))
	}
	t.Setenv(fakeFolder, folder)
	started, options, err := launchAgain(t.Context(), os.Args[0], Options{UIPort: NoUI, Namespace: DefaultNamespace})
	if err == nil {
		t.Cleanup(func() { require.NoError(t, started.kill()) })
	}
	left, errLeft := os.ReadDir(folder)
	require.NoError(t, errLeft)
	require.Empty(t, left, "all of them were started")
	return started, options, err
}

func TestAServerWithoutItsDatabaseOrAPortIsStartedAgain(t *testing.T) {
	for _, broken := range []string{"loses-namespaces", "loses-workflows", "exits-for-a-port"} {
		t.Run(broken, func(t *testing.T) {
			started, options, err := startFake(t, broken, broken, "serves")
			require.NoError(t, err)
			require.True(t, alive(started.cmd.Process.Pid))
			require.NotZero(t, options.Port)
			_, _, err = startFake(t, broken, broken, broken)
			require.Error(t, err, "there are three attempts")
		})
	}
}

// Some services of such a server answer, but others never start: the program exits a while later.
func TestAServerThatDoesNotServeWorkflowsHasNotStarted(t *testing.T) {
	for _, behaviour := range []string{"has-no-shard", "exits-after-answers"} {
		t.Run(behaviour, func(t *testing.T) {
			_, _, err := startFake(t, behaviour)
			require.ErrorContains(t, err, "exited before it was ready")
		})
	}
}
