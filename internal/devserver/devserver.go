// Package devserver finds or provides a Temporal server for one machine: the dev server of the official temporal
// command line, with its data in a SQLite file or in memory.
//
// Start runs one as a child process that cannot outlive its owner, Binary finds or installs the program it needs, and
// Find says whether a server is running already where the user's settings point.
package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// DefaultNamespace is the namespace of a server whose Options name none.
const DefaultNamespace = "default"

// NoUI as Options.UIPort starts the server without its Web UI.
const NoUI = -1

const (
	startDeadline = 90 * time.Second // from the process's start until it answers; under a second on an idle machine
	stopGrace     = 10 * time.Second // from SIGTERM until SIGKILL, when the context of Stop has no earlier deadline
	killDeadline  = 10 * time.Second // from SIGKILL until the process must be gone
	startAttempts = 3                // when a port that was free is taken before the server listens on it
)

// Options say what kind of server Start provides. The zero value is an in-memory server with its Web UI on free ports.
type Options struct {
	// DBFile is the SQLite file that keeps the server's data, with two more of its name next to it while the server runs.
	// It is made with its folder if missing. "" keeps data in memory, to be lost with the process.
	DBFile string
	// Port serves gRPC and UIPort the Web UI, both on 127.0.0.1 only. 0 takes a free port; UIPort NoUI means no UI.
	Port, UIPort int
	// Namespace is registered at the start if missing; "" means DefaultNamespace, which always exists too.
	Namespace string
	// Log gets what the server prints, as it prints it. Nil keeps only the end of it, for LogTail.
	Log io.Writer
	// Progress gets sentences for a person about steps that take long, such as installing the server. Nil drops them.
	Progress func(sentence string)
	// CacheDir is where the server program is kept once installed; "" is the folder tempool in the user's cache folder.
	CacheDir string
	// ExtraArgs follow the arguments that Tempool itself gives to `temporal server start-dev`; the last of a kind counts.
	ExtraArgs []string
}

// Server is a dev server that Start began. It keeps its address through Restart. Its methods may be called by any
// goroutine.
type Server struct {
	options Options // with defaults filled in and ports chosen
	binary  string

	life    sync.Mutex // held through Stop and Restart, which exclude each other
	mu      sync.Mutex // guards current
	current *instance
}

// Start provides a server and returns once it answers for its namespace, installing the server program first if the
// machine has none (see Binary). The caller must call Stop. If the calling process dies without doing so, whatever way,
// the server is killed.
//
// An error says what to do, also about a port that is taken.
func Start(ctx context.Context, options Options) (*Server, error) {
	binary, err := Binary(ctx, options.CacheDir, options.Progress)
	if err != nil {
		return nil, err
	}
	if options.Namespace == "" {
		options.Namespace = DefaultNamespace
	}
	if options.DBFile != "" {
		if options.DBFile, err = filepath.Abs(options.DBFile); err != nil {
			return nil, fmt.Errorf("find the folder of the Temporal server's file: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(options.DBFile), 0o755); err != nil {
			return nil, fmt.Errorf("make the folder of the Temporal server's file: %w", err)
		}
	}
	for attempt := 1; ; attempt++ {
		server := &Server{binary: binary, options: options}
		err := server.choosePorts()
		if err == nil {
			server.current, err = launch(ctx, binary, server.options)
		}
		if err == nil {
			return server, nil
		}
		if attempt == startAttempts || !errors.Is(err, errPortRace) || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (s *Server) choosePorts() error {
	for _, port := range []*int{&s.options.Port, &s.options.UIPort} {
		switch {
		case *port == NoUI && port == &s.options.UIPort:
		case *port == 0:
			free, err := freePort()
			if err != nil {
				return err
			}
			*port = free
		default:
			if err := checkPort(*port); err != nil {
				return err
			}
		}
	}
	return nil
}

// Address is where clients connect, as host:port.
func (s *Server) Address() string { return hostPort(s.options.Port) }

// Namespace is the namespace that was asked for.
func (s *Server) Namespace() string { return s.options.Namespace }

// UIURL is the address of the Web UI, "" if there is none.
func (s *Server) UIURL() string {
	if s.options.UIPort == NoUI {
		return ""
	}
	return "http://" + hostPort(s.options.UIPort)
}

// PID is the operating system's number of the server process, or of the last one if it has ended.
func (s *Server) PID() int { return s.instance().cmd.Process.Pid }

// Done is closed when the server process has ended, for whatever reason. After Restart there is a new one.
func (s *Server) Done() <-chan struct{} { return s.instance().done }

// LogTail is the end of what the server process has printed: at most 16 KiB of it.
func (s *Server) LogTail() string { return s.instance().tail.String() }

// Stop ends the server process in good order, or by force if it takes more than ten seconds or ctx ends before. It
// returns when the process is gone. Stopping a server that has ended is no error.
func (s *Server) Stop(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	return s.instance().stop(ctx)
}

// Kill ends the server process with SIGKILL, as a crash would, and returns when it is gone.
func (s *Server) Kill() error { return s.instance().kill() }

// Restart stops the server if it runs and starts it anew with the same options on the same ports. A server with a
// DBFile goes on with its data, one without begins empty.
func (s *Server) Restart(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	if err := s.instance().stop(ctx); err != nil {
		return err
	}
	if err := s.choosePorts(); err != nil {
		return err
	}
	fresh, err := launch(ctx, s.binary, s.options)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = fresh
	return nil
}

func (s *Server) instance() *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (i *instance) stop(ctx context.Context) error {
	if i.ended() {
		return nil
	}
	if err := i.signal(syscall.SIGTERM); err != nil {
		return err
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-i.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	return i.kill()
}

func (i *instance) kill() error {
	if err := i.signal(syscall.SIGKILL); err != nil {
		return err
	}
	patience := time.NewTimer(killDeadline)
	defer patience.Stop()
	select {
	case <-i.done:
		return nil
	case <-patience.C:
		return fmt.Errorf("the Temporal server (process %d) does not end after SIGKILL; look at it with ps", i.cmd.Process.Pid)
	}
}

func (i *instance) signal(signal syscall.Signal) error {
	if err := i.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to the Temporal server (process %d): %w", signal, i.cmd.Process.Pid, err)
	}
	return nil
}

// environment is the calling process's without the settings of Temporal clients, which the server would read too.
func environment() []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TEMPORAL_") {
			kept = append(kept, entry)
		}
	}
	return kept
}
