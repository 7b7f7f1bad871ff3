package dev

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/internal/sleep"
)

// defaultUIPort is the default port of Temporal's Web UI.
const defaultUIPort = 8233

const serverStopTimeout = 20 * time.Second

// startServer finds or starts a Temporal server and connects to it.
func (s *starter) startServer(ctx context.Context) error {
	s.temporal = tempool.Options{Address: s.options.Address, Namespace: s.options.Namespace,
		Logger: log.NewStructuredLogger(s.log), Payloads: s.options.Payloads}
	if s.options.Address == "" {
		if err := s.findOrStartServer(ctx); err != nil {
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

func (s *starter) findOrStartServer(ctx context.Context) error {
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
		s.screen.line("Using the running Temporal server %s at %s.", found.ServerVersion, found.Options.HostPort)
		return nil
	case found.Configured:
		return fmt.Errorf("the Temporal settings (TEMPORAL_ADDRESS or a profile) name %s, but %w; start that server, or "+
			"remove the setting to have one started",
			found.Options.HostPort, found.Err)
	}
	return s.startOwnServer(ctx)
}

func (s *starter) startOwnServer(ctx context.Context) error {
	if s.options.Fresh {
		if err := s.data.removeDatabase(); err != nil {
			return err
		}
	}
	server, err := devserver.Start(ctx, devserver.Options{
		DBFile: s.data.database(), Namespace: s.temporal.Namespace, Log: s.data.serverOut,
		Port:     s.port(s.options.Port, defaultPort, "Temporal"),
		UIPort:   s.port(s.options.UIPort, defaultUIPort, "the Web UI"),
		Progress: func(sentence string) { s.screen.line("%s", sentence) },
	})
	if err != nil {
		return err
	}
	s.server = server
	s.temporal.Address = server.Address()
	s.onStop("the Temporal server", serverStopTimeout, server.Stop)
	s.screen.line("Temporal runs at %s, its Web UI at %s, its data in %s.", server.Address(), server.UIURL(),
		s.data.database())
	return nil
}

// serverExited reports whether its own server has exited.
func (s *starter) serverExited() bool { return s.server != nil && sleep.Ended(s.server.Done()) }

// port returns the requested port, else the default one, else 0 for any free port.
func (s *starter) port(requested, preferred int, name string) int {
	if requested != 0 {
		return requested
	}
	if free(net.JoinHostPort("127.0.0.1", strconv.Itoa(preferred))) {
		return preferred
	}
	s.screen.line("Port %d is taken; %s gets another one.", preferred, name)
	return 0
}

func free(address string) bool {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// checkSetup reports missing search attributes.
func (s *starter) checkSetup(ctx context.Context) error {
	missing, err := s.client.MissingSearchAttributes(ctx)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		s.screen.line("Namespace %s has no Tempool search attributes; they are optional, and '%s setup' adds them.",
			s.client.Namespace(), s.ctl())
	}
	return nil
}
