package devserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/need"
)

// waitTimeout bounds each wait; only a failing test waits so long.
const waitTimeout = 3 * time.Minute

// ownerFile makes the test binary a process that starts a server, writes its PID into the named file and waits to be
// killed.
const ownerFile = "DEVSERVER_TEST_OWNER_FILE"

func TestMain(m *testing.M) {
	if folder := os.Getenv(fakeFolder); folder != "" {
		os.Exit(runFake(folder))
	}
	if file := os.Getenv(ownerFile); file != "" {
		server, err := Start(context.Background(), Options{UIPort: NoUI})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(server.PID())+"\n"), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		<-server.Done()
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, options Options) *Server {
	t.Helper()
	server, err := Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, server.Stop(context.Background()))
	})
	return server
}

func dial(t *testing.T, server *Server) client.Client {
	t.Helper()
	temporal, err := client.DialContext(t.Context(),
		client.Options{HostPort: server.Address(), Namespace: server.Namespace(), Logger: silent()})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	return temporal
}

func begin(t *testing.T, temporal client.Client, id string) {
	t.Helper()
	_, err := temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "nobody-polls"},
		"Anything")
	require.NoError(t, err)
}

func status(t *testing.T, temporal client.Client, id string) enums.WorkflowExecutionStatus {
	t.Helper()
	answer, err := temporal.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	return answer.GetWorkflowExecutionInfo().GetStatus()
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestAServerWithAFileKeepsItsDataAcrossStopCrashAndRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made", "on", "demand", "temporal.db")
	server := start(t, Options{DBFile: file, UIPort: NoUI, Namespace: "tempool-test"})
	require.Empty(t, server.UIURL())
	temporal := dial(t, server)
	begin(t, temporal, "before-restart")

	firstPID, address := server.PID(), server.Address()
	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, address, server.Address())
	require.NotEqual(t, firstPID, server.PID())
	require.False(t, alive(firstPID))
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, status(t, temporal, "before-restart"))

	begin(t, temporal, "before-crash")
	crashed := server.Done()
	require.NoError(t, server.Kill())
	<-crashed
	require.NoError(t, server.Kill(), "killing twice is not an error")
	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, status(t, temporal, "before-crash"))

	answer, err := temporal.OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: "tempool-test"})
	require.NoError(t, err)
	for _, name := range api.SearchAttributes() {
		require.Equal(t, enums.INDEXED_VALUE_TYPE_KEYWORD, answer.GetCustomAttributes()[name], name)
	}
}

// fullDisk is a log that cannot be written, which must not end the server.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestTwoServersUseDifferentPorts(t *testing.T) {
	one, two := start(t, Options{}), start(t, Options{UIPort: NoUI, Log: fullDisk{}})
	require.NotEqual(t, one.Address(), two.Address())
	begin(t, dial(t, one), "only-in-one")

	_, err := dial(t, two).DescribeWorkflowExecution(t.Context(), "only-in-one", "")
	require.Error(t, err)

	conn, err := net.Dial("tcp", strings.TrimPrefix(one.UIURL(), "http://"))
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	pid := one.PID()
	require.NoError(t, one.Stop(t.Context()))
	<-one.Done()
	require.False(t, alive(pid))
	require.NoError(t, one.Stop(t.Context()), "it may be stopped again")
	require.Contains(t, one.LogTail(), "Server:")
}

func TestATakenPortFailsTheStart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port

	for name, options := range map[string]Options{"gRPC": {Port: port}, "Web UI": {UIPort: port}} {
		t.Run(name, func(t *testing.T) {
			_, err := Start(t.Context(), options)
			require.ErrorContains(t, err, fmt.Sprintf("port %d, which is taken", port))
			require.ErrorContains(t, err, "choose another port")
			require.ErrorIs(t, err, syscall.EADDRINUSE)
		})
	}
	_, err = Start(t.Context(), Options{Port: 70000})
	require.ErrorContains(t, err, "invalid port 70000")
}

func TestTheErrorOfAServerThatExitsHasItsOutput(t *testing.T) {
	_, err := Start(t.Context(), Options{UIPort: NoUI, ExtraArgs: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "exited before it was ready")
	require.ErrorContains(t, err, "no-such-flag")
}

func TestAServerDiesWithItsKilledOwner(t *testing.T) {
	need.Program(t, "ps")
	file := filepath.Join(t.TempDir(), "pid")
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerFile+"="+file)
	owner.Stderr = os.Stderr
	require.NoError(t, owner.Start())
	var pid int
	require.Eventually(t, func() bool {
		var err error
		pid, err = readPID(file)
		return err == nil
	}, waitTimeout, 20*time.Millisecond)
	require.True(t, alive(pid))

	require.NoError(t, owner.Process.Kill())
	require.Error(t, owner.Wait())
	require.Eventually(t, func() bool { return gone(pid) }, waitTimeout, 20*time.Millisecond)
}

// readPID fails while the line is not written in full.
func readPID(file string) (int, error) {
	written, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	line, whole := strings.CutSuffix(string(written), "\n")
	if !whole {
		return 0, fmt.Errorf("%s holds no line yet", file)
	}
	return strconv.Atoi(line)
}

// gone reports whether a process that is not our child has ended: reaped, or waiting for a parent that never reaps.
func gone(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}
