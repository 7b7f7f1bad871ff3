// Package devserver provides a Temporal server on one machine: the dev server of the official temporal command
// line, with its data in a SQLite file or in memory.
//
// Start runs one as a child process that cannot outlive its owner, and Binary finds or installs its program.
package devserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// startAttempts bounds the attempts of a start; see launchAgain.
const startAttempts = 3

// Server is a running dev server. It keeps its address through Restart. It is safe for concurrent use.
type Server struct {
	options Options // with defaults and chosen ports
	binary  string

	lifecycle sync.Mutex // held during Stop and Restart

	mu      sync.Mutex
	current *serverProcess
}

// Start starts a server and returns when it serves its namespace and the workflows in it. It installs the server
// program first if the machine has none (see Binary). The caller must call Stop; if the calling process dies first, in
// whatever way, the server is killed.
func Start(ctx context.Context, options Options) (*Server, error) {
	binary, err := Binary(ctx, options.Progress)
	if err != nil {
		return nil, err
	}
	options.Namespace = cmp.Or(options.Namespace, DefaultNamespace)
	if options.DBFile != "" {
		if options.DBFile, err = filepath.Abs(options.DBFile); err != nil {
			return nil, fmt.Errorf("resolve the path of the Temporal server's file: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(options.DBFile), 0o755); err != nil {
			return nil, fmt.Errorf("create the folder of the Temporal server's file: %w", err)
		}
	}
	server := &Server{binary: binary}
	if server.current, server.options, err = launchAgain(ctx, binary, options); err != nil {
		return nil, err
	}
	return server, nil
}

// Address returns HOST:PORT for clients.
func (s *Server) Address() string { return hostPort(s.options.Port) }

// Namespace returns the namespace of Options.
func (s *Server) Namespace() string { return s.options.Namespace }

// UIURL returns the URL of the Web UI, "" if there is none.
func (s *Server) UIURL() string {
	if s.options.UIPort == NoUI {
		return ""
	}
	return "http://" + hostPort(s.options.UIPort)
}

// PID returns the process ID of the server, or of its last process.
func (s *Server) PID() int { return s.process().cmd.Process.Pid }

// Done returns a channel that is closed when the server process has exited for any reason. Restart replaces it.
func (s *Server) Done() <-chan struct{} { return s.process().done }

// LogTail returns the last 16 KiB of the server's output.
func (s *Server) LogTail() string { return s.process().tail.String() }

// Stop sends SIGTERM to the server process, and SIGKILL after 10 s or at the end of ctx. It returns when the process
// has exited. Stopping a stopped server does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	return s.process().stop(ctx)
}

// Kill sends SIGKILL to the server process, like a crash, and returns when it has exited.
func (s *Server) Kill() error { return s.process().kill() }

// Restart stops the server and starts it with the same options on the same ports. It returns when the server serves,
// like Start. A server with a DBFile keeps its data; one without starts empty.
func (s *Server) Restart(ctx context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if err := s.process().stop(ctx); err != nil {
		return err
	}
	fresh, _, err := launchAgain(ctx, s.binary, s.options)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = fresh
	return nil
}

func (s *Server) process() *serverProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}
