//go:build cluster

package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tempool/tempool"
)

// clusterVariable names the folder of the cluster that scripts/temporal-cluster.sh runs.
const clusterVariable = "TEMPOOL_CLUSTER"

// server is a namespace of the cluster behind a proxy, as a load balancer stands in front of the server processes of an
// installation. A test that kills its server cuts the proxy's connections: the cluster is unreachable and continues.
type server = *clusterServer

type clusterServer struct {
	namespace string
	frontends []string
	address   string // of the proxy

	mu       sync.Mutex
	listener net.Listener // nil while the cluster is unreachable
	conns    map[net.Conn]bool
	next     int
	accepts  sync.WaitGroup
}

const takesArguments = false

func startServer(t *testing.T, _ string, _ ...string) server {
	t.Helper()
	folder := os.Getenv(clusterVariable)
	require.NotEmpty(t, folder, "run this test with scripts/temporal-cluster.sh run")
	frontends, err := os.ReadFile(filepath.Join(folder, "frontends"))
	require.NoError(t, err)
	s := &clusterServer{namespace: "test-" + uuid.NewString(), frontends: strings.Fields(string(frontends)),
		address: ownAddress(t), conns: map[net.Conn]bool{}}
	require.NoError(t, s.Restart(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Kill()) })

	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: s.address, Logger: newDiscardLogger()})
	require.NoError(t, err)
	defer namespaces.Close()
	require.NoError(t, namespaces.Register(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: s.namespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	}))
	user, err := client.NewLazyClient(client.Options{HostPort: s.address, Namespace: s.namespace,
		Logger: newDiscardLogger()})
	require.NoError(t, err)
	defer user.Close()
	setup := tempool.NewClient(user, s.namespace)
	defer setup.Close()
	require.Eventually(t, func() bool { // each server process reads new namespaces once a second
		_, err := setup.Setup(t.Context())
		return err == nil
	}, waitTimeout, 100*time.Millisecond)
	for range len(s.frontends) { // each connection goes to another server process
		s.awaitNamespace(t)
	}
	return s
}

// awaitNamespace waits until the next server process knows the namespace and its search attributes.
func (s *clusterServer) awaitNamespace(t *testing.T) {
	t.Helper()
	user, err := client.NewLazyClient(client.Options{HostPort: s.address, Namespace: s.namespace,
		Logger: newDiscardLogger()})
	require.NoError(t, err)
	defer user.Close()
	var missing *serviceerror.NotFound
	require.Eventually(t, func() bool {
		_, err := user.DescribeWorkflowExecution(t.Context(), "none", "")
		_, errSearch := user.CountWorkflow(t.Context(),
			countOf(s.namespace, "TempoolPool = 'none' AND TempoolState = 'none'"))
		return errors.As(err, &missing) && strings.Contains(err.Error(), "workflow") && errSearch == nil
	}, waitTimeout, 100*time.Millisecond)
}

func (s *clusterServer) Address() string   { return s.address }
func (s *clusterServer) Namespace() string { return s.namespace }

// Kill makes the cluster unreachable.
func (s *clusterServer) Kill() error {
	s.mu.Lock()
	var err error
	if s.listener != nil {
		err = s.listener.Close()
	}
	s.listener = nil
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.accepts.Wait()
	return err
}

// Done returns a closed channel: Kill takes effect at once.
func (*clusterServer) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Restart makes the cluster reachable at the same address.
func (s *clusterServer) Restart(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.listener, s.address = listener, listener.Addr().String()
	s.accepts.Go(func() { s.accept(listener) })
	return nil
}

func (s *clusterServer) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.accepts.Go(func() { s.forward(conn) })
	}
}

// forward connects a client to a server process that listens.
func (s *clusterServer) forward(conn net.Conn) {
	defer conn.Close()
	frontend := s.dial()
	if frontend == nil {
		return
	}
	defer frontend.Close()
	if !s.track(conn, frontend) {
		return
	}
	defer s.forget(conn, frontend)
	var copies sync.WaitGroup
	copies.Go(func() { copyAndClose(conn, frontend) })
	copies.Go(func() { copyAndClose(frontend, conn) })
	copies.Wait()
}

func copyAndClose(to, from net.Conn) {
	_, _ = io.Copy(to, from) // the other side sees the end of the connection
	_ = to.Close()
	_ = from.Close()
}

func (s *clusterServer) dial() net.Conn {
	s.mu.Lock()
	s.next++
	first := s.next
	s.mu.Unlock()
	for i := range s.frontends {
		conn, err := net.DialTimeout("tcp", s.frontends[(first+i)%len(s.frontends)], time.Second)
		if err == nil {
			return conn
		}
	}
	return nil
}

func (s *clusterServer) track(conns ...net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return false
	}
	for _, conn := range conns {
		s.conns[conn] = true
	}
	return true
}

func (s *clusterServer) forget(conns ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range conns {
		delete(s.conns, conn)
	}
}
