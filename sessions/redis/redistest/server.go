// Package redistest runs Redis servers for tests.
package redistest

import (
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// patience is how long a server may take to start or to stop.
const patience = 30 * time.Second

// Server is a redis-server on a port and in a folder of its own, which ends with its test. It writes what it acknowledges to disk first.
type Server struct {
	t       *testing.T
	port    string
	folder  string
	more    []string
	command *exec.Cmd
	ended   chan struct{}
}

// Start starts a server with more arguments and waits until it answers.
func Start(t *testing.T, more ...string) *Server {
	t.Helper()
	s := &Server{t: t, port: freePort(t), folder: t.TempDir(), more: more}
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// StartCluster starts a cluster of one node, which refuses what a cluster of many would.
func StartCluster(t *testing.T) *Server {
	t.Helper()
	s := Start(t, "--cluster-enabled", "yes", "--cluster-port", freePort(t))
	client := s.client()
	defer client.Close()
	require.NoError(t, client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool { return client.Set(t.Context(), "ready", 1, 0).Err() == nil }, patience, 10*time.Millisecond)
	return s
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// Address is host:port.
func (s *Server) Address() string { return "127.0.0.1:" + s.port }

// URL is what a pool's sessions.url says.
func (s *Server) URL() string { return "redis://" + s.Address() }

func (s *Server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Address(), DialTimeout: time.Second, ReadTimeout: time.Second})
}

// Restart starts the server, which must have been killed, with what it had, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	program, err := exec.LookPath("redis-server")
	require.NoError(s.t, err, "run scripts/setup-debian.sh, or install Redis")
	arguments := []string{"--port", s.port, "--bind", "127.0.0.1", "--dir", s.folder, "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--logfile", "redis.log"}
	command, ended := exec.Command(program, append(arguments, s.more...)...), make(chan struct{})
	require.NoError(s.t, command.Start())
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	s.command, s.ended = command, ended
	client := s.client()
	defer client.Close()
	require.Eventually(s.t, func() bool { return client.Ping(s.t.Context()).Err() == nil }, patience, 10*time.Millisecond, "redis-server does not answer")
}

// Kill ends the server at once, as a crash would, and waits until it has ended.
func (s *Server) Kill() {
	s.t.Helper()
	_ = s.command.Process.Kill()
	select {
	case <-s.ended:
	case <-time.After(patience):
		require.Fail(s.t, "redis-server was killed and did not end")
	}
}
