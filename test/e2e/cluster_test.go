//go:build cluster

package e2e

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	*link
	namespace string
	frontends []string
	next      atomic.Int64
}

const takesArguments = false

func startServer(t *testing.T, _ string, _ ...string) server {
	t.Helper()
	folder := os.Getenv(clusterVariable)
	require.NotEmpty(t, folder, "run this test with scripts/temporal-cluster.sh run")
	frontends, err := os.ReadFile(filepath.Join(folder, "frontends"))
	require.NoError(t, err)
	s := &clusterServer{namespace: "test-" + uuid.NewString(), frontends: strings.Fields(string(frontends))}
	s.link = newLink(t, ownAddress(t), s.dialNext)

	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: s.addr, Logger: newDiscardLogger()})
	require.NoError(t, err)
	defer namespaces.Close()
	require.NoError(t, namespaces.Register(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: s.namespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	}))
	user, err := client.NewLazyClient(client.Options{HostPort: s.addr, Namespace: s.namespace,
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
	user, err := client.NewLazyClient(client.Options{HostPort: s.addr, Namespace: s.namespace,
		Logger: newDiscardLogger()})
	require.NoError(t, err)
	defer user.Close()
	var missing *serviceerror.NotFound
	require.Eventually(t, func() bool {
		_, err := user.DescribeWorkflowExecution(t.Context(), "none", "")
		_, errSearch := user.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: s.namespace, Query: "TempoolPool = 'none' AND TempoolState = 'none'",
		})
		return errors.As(err, &missing) && strings.Contains(err.Error(), "workflow") && errSearch == nil
	}, waitTimeout, 100*time.Millisecond)
}

func (s *clusterServer) Address() string   { return s.addr }
func (s *clusterServer) Namespace() string { return s.namespace }

// Kill makes the cluster unreachable.
func (s *clusterServer) Kill() error {
	s.cut()
	return nil
}

// Done returns a closed channel: Kill takes effect at once.
func (*clusterServer) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Restart makes the cluster reachable at the same address.
func (s *clusterServer) Restart(context.Context) error {
	s.heal()
	return nil
}

// dialNext connects to a server process that listens, each time to another one.
func (s *clusterServer) dialNext() (conn net.Conn, err error) {
	first := int(s.next.Add(1))
	for i := range s.frontends {
		conn, err = net.DialTimeout("tcp", s.frontends[(first+i)%len(s.frontends)], time.Second)
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}
