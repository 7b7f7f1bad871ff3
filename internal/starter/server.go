package starter

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/worker"
)

// The usual ports, where programs look for Temporal and its Web UI unless told otherwise.
const (
	usualPort   = 7233
	usualUIPort = 8233
)

const (
	serverStopLimit = 20 * time.Second
	agentStopLimit  = 15 * time.Second // the pool is stopped by then; this is for pools that others have started on the agent
)

// startServer finds a Temporal server, or provides one, and connects to it.
func (s *starter) startServer(ctx context.Context) error {
	s.temporal = tempool.Options{Address: s.options.Address, Namespace: s.options.Namespace, Logger: log.NewStructuredLogger(s.log)}
	if s.options.Address == "" {
		if err := s.findOrProvide(ctx); err != nil {
			return err
		}
	}
	var err error
	if s.client, err = tempool.Dial(ctx, s.temporal); err != nil {
		return err
	}
	s.onStop("", time.Second, func(context.Context) error {
		s.client.Close()
		return nil
	})
	if s.options.Address != "" {
		s.screen.line("Using the Temporal server at %s.", s.options.Address)
	}
	return s.checkSetup(ctx)
}

func (s *starter) findOrProvide(ctx context.Context) error {
	found, err := devserver.Find(ctx)
	if err != nil {
		return err
	}
	s.temporal.Namespace = cmp.Or(s.options.Namespace, found.Options.Namespace)
	wantsOwn := s.options.Port != 0 || s.options.UIPort != 0 || s.options.Fresh
	switch {
	case wantsOwn:
	case found.Serving:
		s.temporal.Address = found.Options.HostPort
		s.screen.line("Using the Temporal server %s that runs at %s.", found.ServerVersion, found.Options.HostPort)
		return nil
	case found.Configured:
		return fmt.Errorf("the Temporal settings (TEMPORAL_ADDRESS or a profile) name %s, but %w; start that server, or take the setting away to have one provided",
			found.Options.HostPort, found.Why)
	}
	return s.provide(ctx)
}

// provide starts a server of this process's own.
func (s *starter) provide(ctx context.Context) error {
	if s.options.Fresh {
		if err := s.folder.forget(); err != nil {
			return err
		}
	}
	server, err := devserver.Start(ctx, devserver.Options{
		DBFile: s.folder.database(), Namespace: s.temporal.Namespace, Log: s.folder.serverOut,
		Port:     s.port(s.options.Port, usualPort, "Temporal"),
		UIPort:   s.port(s.options.UIPort, usualUIPort, "the Web UI"),
		Progress: func(sentence string) { s.screen.line("%s", sentence) },
	})
	if err != nil {
		return err
	}
	s.server = server
	s.temporal.Address = server.Address()
	s.onStop("the Temporal server", serverStopLimit, server.Stop)
	s.screen.line("Temporal runs at %s, its Web UI at %s, its data in %s.", server.Address(), server.UIURL(), s.folder.database())
	return nil
}

// serverGone reports whether the starter's own server has ended.
func (s *starter) serverGone() bool {
	if s.server == nil {
		return false
	}
	select {
	case <-s.server.Done():
		return true
	default:
		return false
	}
}

// port is the one that was asked for; else the usual one; else, said aloud, 0 for any free one where the usual one is taken.
func (s *starter) port(asked, usual int, what string) int {
	if asked != 0 {
		return asked
	}
	if free(net.JoinHostPort("127.0.0.1", strconv.Itoa(usual))) {
		return usual
	}
	s.screen.line("Port %d is taken by another program, so %s gets another one.", usual, what)
	return 0
}

func free(address string) bool {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// checkSetup says what a server that somebody else has set up lacks.
func (s *starter) checkSetup(ctx context.Context) error {
	missing, err := s.client.MissingSearchAttributes(ctx)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		s.screen.line("The namespace %s lacks Tempool's search attributes; all works without, and '%s setup' adds them.", s.client.Namespace(), s.ctl())
	}
	return nil
}

// startAgent runs an agent in this process.
func (s *starter) startAgent(ctx context.Context) error {
	listen := s.options.Listen
	if listen == "" {
		listen = worker.DefaultListen
		if !free(listen) {
			s.screen.line("The gateway's usual address %s is taken by another program, so it gets another port.", listen)
			listen = "127.0.0.1:" + strconv.Itoa(anyPort())
		}
	} else if !free(listen) {
		return fmt.Errorf("the gateway cannot listen on %s; stop the program that has the port, or give another with --listen", listen)
	}
	var err error
	s.agent, err = worker.Start(ctx, worker.Config{
		Address: s.temporal.Address, Namespace: s.temporal.Namespace, HostID: hostID(), OtherHostID: "have this starter work on another Temporal server (--address)", StateDir: s.folder.agentState(),
		Listen: listen, Capacity: max(worker.DefaultCapacity, 2*s.spec.Pool.Size), Labels: labels(s.spec.Pool.Placement), Logger: s.log,
		StopTimeout: agentStopLimit,
	})
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	s.onStop("the agent", agentStopLimit, func(context.Context) error { return s.agent.Stop() })
	s.screen.line("The agent runs, its gateway at %s, its log in %s.", s.agent.Endpoint(), s.folder.logPath)
	return nil
}

// anyPort is a port that is free now, or 0 to have the system choose.
func anyPort() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// labels are those the agent takes workers for: the pool's own, and the default so that more pools can be started on it.
func labels(placement string) []string {
	if placement == "" || placement == api.DefaultPlacement {
		return []string{api.DefaultPlacement}
	}
	return []string{api.DefaultPlacement, placement}
}

var notInHostID = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// hostID is the same at every start on this machine, and no other agent's.
func hostID() string {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	name = notInHostID.ReplaceAllString(name, "-")
	return "starter-" + name[:min(len(name), 100)]
}

// isDefaultAddress reports whether programs find Temporal at address without being told.
func isDefaultAddress(address string) bool {
	host, port, err := net.SplitHostPort(cmp.Or(address, client.DefaultHostPort))
	return err == nil && port == strconv.Itoa(usualPort) && (host == "localhost" || host == "127.0.0.1")
}
