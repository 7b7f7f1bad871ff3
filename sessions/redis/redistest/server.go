// Package redistest runs Redis servers for tests.
package redistest

import (
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
)

// timeout is how long a server may take to start or to stop.
const timeout = 3 * time.Minute

// Server is a redis-server with its own port and directory, killed at the end of the test. It acknowledges a write
// after an fsync.
type Server struct {
	t       *testing.T
	port    string
	folder  string
	extra   []string
	command *exec.Cmd
	exited  chan struct{}
}

// Start starts a server with extra arguments and waits until it answers. It skips the test where Redis is not
// installed.
func Start(t *testing.T, extra ...string) *Server {
	t.Helper()
	need.Program(t, "redis-server")
	s := &Server{t: t, port: freePort(t), folder: t.TempDir(), extra: extra}
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// StartCluster starts a cluster of one node, which rejects the commands that a larger cluster would reject.
func StartCluster(t *testing.T) *Server {
	t.Helper()
	s := Start(t, "--cluster-enabled", "yes", "--cluster-port", freePort(t))
	client := s.client()
	defer client.Close()
	require.NoError(t, client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool { return client.Set(t.Context(), "ready", 1, 0).Err() == nil }, timeout,
		10*time.Millisecond)
	return s
}

// freePort returns a port below those that the system gives to connections: one of these could get it before the server
// does, or while the server is down, even the connection of a client to itself.
func freePort(t *testing.T) string {
	t.Helper()
	var err error
	for range 100 {
		port := strconv.Itoa(10_000 + rand.IntN(10_000))
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	require.NoError(t, err)
	return ""
}

// Address is host:port.
func (s *Server) Address() string { return "127.0.0.1:" + s.port }

// URL is a value for a pool's sessions.url.
func (s *Server) URL() string { return "redis://" + s.Address() }

func (s *Server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Address(), DialTimeout: time.Second, ReadTimeout: time.Second})
}

// Restart starts the killed server again with its data and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	arguments := []string{"--port", s.port, "--bind", "127.0.0.1", "--dir", s.folder, "--save", "", "--appendonly", "yes",
		"--appendfsync", "always", "--logfile", "redis.log"}
	command, exited := exec.Command("redis-server", append(arguments, s.extra...)...), make(chan struct{})
	require.NoError(s.t, command.Start())
	go func() {
		defer close(exited)
		_ = command.Wait()
	}()
	s.command, s.exited = command, exited
	client := s.client()
	defer client.Close()
	require.Eventually(s.t, func() bool { return client.Ping(s.t.Context()).Err() == nil }, timeout, 10*time.Millisecond,
		"redis-server does not answer")
}

// Kill sends SIGKILL, as a crash would, and waits until the server has exited.
func (s *Server) Kill() {
	s.t.Helper()
	_ = s.command.Process.Kill()
	select {
	case <-s.exited:
	case <-time.After(timeout):
		require.Fail(s.t, "redis-server did not exit after SIGKILL")
	}
}
