package devserver

import (
	"context"
	"fmt"
	"net"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

const findDeadline = 5 * time.Second

// Found is what Find learned.
type Found struct {
	// Options reach the place that the user's settings name, or localhost:7233 if they name none.
	Options client.Options
	// Configured tells that the settings name an address, so nothing else may be used in its place.
	Configured bool
	// Serving tells that a Temporal server answers there, of the release ServerVersion.
	Serving       bool
	ServerVersion string
	// Why says why none answers.
	Why error
}

// Find looks whether a Temporal server answers where the standard settings point: the TEMPORAL_ environment variables
// and the profile in Temporal's configuration file, else localhost:7233. It takes at most five seconds. An error means
// that the settings cannot be read; a server that does not answer is none.
func Find(ctx context.Context) (Found, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	if err != nil {
		return Found{}, fmt.Errorf("read Temporal's settings (TEMPORAL_… variables and configuration file): %w", err)
	}
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return Found{}, fmt.Errorf("understand Temporal's settings (TEMPORAL_… variables and configuration file): %w", err)
	}
	found := Found{Options: options, Configured: profile.Address != ""}
	if found.Options.HostPort == "" {
		found.Options.HostPort = client.DefaultHostPort
	}
	if found.Options.Namespace == "" {
		found.Options.Namespace = client.DefaultNamespace
	}
	found.ServerVersion, found.Why = ask(ctx, found.Options)
	found.Serving = found.Why == nil
	return found, nil
}

// ask returns the release of the server.
func ask(ctx context.Context, options client.Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, findDeadline)
	defer cancel()
	// The client would go on trying until the deadline where nobody listens. An address of another form than host:port
	// is the client's to understand.
	if _, _, err := net.SplitHostPort(options.HostPort); err == nil {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", options.HostPort)
		if err != nil {
			return "", fmt.Errorf("nobody listens at %s: %w", options.HostPort, err)
		}
		_ = conn.Close()
	}
	options.Logger = silent()
	temporal, err := client.NewLazyClient(options)
	if err != nil {
		return "", fmt.Errorf("make a client for %s: %w", options.HostPort, err)
	}
	defer temporal.Close()
	info, err := temporal.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("no Temporal server answers at %s: %w", options.HostPort, err)
	}
	return info.GetServerVersion(), nil
}
