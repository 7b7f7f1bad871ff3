package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/devserver"
)

// defaultPort is the default port of Temporal, defaultUIPort that of its Web UI.
const defaultPort, defaultUIPort = 7233, 8233

const (
	serverStopTimeout = 20 * time.Second
	findTimeout       = 5 * time.Second
)

// startServer finds or starts a Temporal server and connects to it.
func (s *starter) startServer(ctx context.Context) error {
	s.temporal = tempool.Options{Address: s.options.Address, Namespace: s.options.Namespace,
		Logger: log.NewStructuredLogger(s.data.logger), Payloads: s.options.Payloads}
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
		s.line("Using the Temporal server at %s.", s.options.Address)
	}
	return nil
}

// findOrStartServer takes the server in the standard settings, else one at the default address, else one of its own.
func (s *starter) findOrStartServer(ctx context.Context) error {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	if err != nil {
		return fmt.Errorf("read Temporal's settings (TEMPORAL_… variables and configuration file): %w", err)
	}
	s.temporal.Namespace = cmp.Or(s.options.Namespace, profile.Namespace, client.DefaultNamespace)
	s.temporal.Address = cmp.Or(profile.Address, client.DefaultHostPort)
	if s.options.Port != 0 || s.options.UIPort != 0 || profile.Address == "" && free(s.temporal.Address) {
		return s.startOwnServer(ctx)
	}
	switch version, err := s.runningVersion(ctx); {
	case err == nil:
		s.line("Using the running Temporal server %s at %s.", version, s.temporal.Address)
		return nil
	case profile.Address != "":
		return fmt.Errorf("the Temporal settings (TEMPORAL_ADDRESS or a profile) name %s, but %w; start that server, or "+
			"remove the setting to have one started", s.temporal.Address, err)
	}
	return s.startOwnServer(ctx)
}

// runningVersion is the version of the server at the address, and an error if none answers soon.
func (s *starter) runningVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found, err := tempool.Dial(ctx, s.temporal)
	if err != nil {
		return "", err
	}
	defer found.Close()
	server, err := found.Server(ctx)
	if errors.Is(err, api.ErrInvalid) { // it lacks the namespace, as is reported later
		err = nil
	}
	return server.Version, err
}

func (s *starter) startOwnServer(ctx context.Context) error {
	server, err := devserver.Start(ctx, devserver.Options{
		DBFile: s.data.database(), Namespace: s.temporal.Namespace, Log: s.data.serverOut,
		Port:     s.port(s.options.Port, defaultPort, "Temporal"),
		UIPort:   s.port(s.options.UIPort, defaultUIPort, "the Web UI"),
		Progress: func(sentence string) { s.line("%s", sentence) },
	})
	if err != nil {
		return err
	}
	s.server = server
	s.temporal.Address = server.Address()
	s.onStop("the Temporal server", serverStopTimeout, server.Stop)
	s.line("Temporal runs at %s, its Web UI at %s, its data in %s.", server.Address(), server.UIURL(),
		s.data.database())
	return nil
}

// port returns the requested port, else the default one, else 0 for any free port.
func (s *starter) port(requested, preferred int, name string) int {
	if requested != 0 {
		return requested
	}
	if free(net.JoinHostPort("127.0.0.1", strconv.Itoa(preferred))) {
		return preferred
	}
	s.line("Port %d is taken; %s gets another one.", preferred, name)
	return 0
}

func free(address string) bool {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
