package devserver

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// findTimeout bounds Find.
const findTimeout = 5 * time.Second

// Found is the result of Find.
type Found struct {
	// Options connect to the address in the user's settings, or to localhost:7233.
	Options client.Options
	// Configured says that the settings have an address, so nothing else may be used instead.
	Configured bool
	// Serving says that a Temporal server of release ServerVersion answers there.
	Serving       bool
	ServerVersion string
	// Err is why none answers.
	Err error
}

// Find reports whether a Temporal server answers at the address in the standard settings (the TEMPORAL_ environment
// variables and the profile in Temporal's configuration file), else at localhost:7233. It takes at most 5 s. An error
// means that the settings are invalid; a server that does not answer is not an error.
func Find(ctx context.Context) (Found, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	if err != nil {
		return Found{}, fmt.Errorf("read Temporal's settings (TEMPORAL_… variables and configuration file): %w", err)
	}
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return Found{}, fmt.Errorf("parse Temporal's settings (TEMPORAL_… variables and configuration file): %w", err)
	}
	found := Found{Options: options, Configured: profile.Address != ""}
	found.Options.HostPort = cmp.Or(found.Options.HostPort, client.DefaultHostPort)
	found.Options.Namespace = cmp.Or(found.Options.Namespace, client.DefaultNamespace)
	found.ServerVersion, found.Err = serverRelease(ctx, found.Options)
	found.Serving = found.Err == nil
	return found, nil
}

// serverRelease returns the release of the server.
func serverRelease(ctx context.Context, options client.Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	// The client would retry a refused connection until the deadline. It also understands addresses that are not
	// HOST:PORT.
	if _, _, err := net.SplitHostPort(options.HostPort); err == nil {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", options.HostPort)
		if err != nil {
			return "", fmt.Errorf("nothing listens at %s: %w", options.HostPort, err)
		}
		_ = conn.Close()
	}
	options.Logger = silent()
	temporal, err := client.NewLazyClient(options)
	if err != nil {
		return "", fmt.Errorf("create a client for %s: %w", options.HostPort, err)
	}
	defer temporal.Close()
	info, err := temporal.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("no Temporal server answers at %s: %w", options.HostPort, err)
	}
	return info.GetServerVersion(), nil
}
