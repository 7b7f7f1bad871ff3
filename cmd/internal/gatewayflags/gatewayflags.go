// Package gatewayflags defines the flags that protect an agent's gateway, for all programs that start an agent.
package gatewayflags

import (
	"github.com/spf13/cobra"

	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/internal/command"
)

// Security defines the flags of s on a command.
func Security(c *cobra.Command, s *gateway.Security) {
	flags := c.Flags()
	flags.StringVar(&s.Advertise, "advertise", "",
		"base URL of the gateway for clients, such as https://web-1:7460 (default: the address of --listen)")
	flags.StringVar(&s.CertFile, "tls-cert", "", "PEM file with the gateway's certificate; with --tls-key it enables TLS")
	flags.StringVar(&s.KeyFile, "tls-key", "", "PEM file with the certificate's private key")
	flags.StringVar(&s.ClientCAFile, "client-ca", "",
		"PEM file with the CA certificates for clients; every client then needs a certificate")
	flags.StringVar(&s.TokensFile, "tokens", "", "file with the tokens that clients need over TCP; ctl token writes it")
	flags.StringVar(&s.PeerTokenFile, "peer-token", "",
		"file with a secret, the same on all hosts, by which their gateways know each other (or use --client-ca)")
	flags.StringVar(&s.SocketGroup, "socket-group", "",
		"group whose members may call, lease and read over the Unix socket (default: only the agent's user may open it)")
}

// FromEnvironment sets the flags of Security, and --listen, that the command line does not, from TEMPOOL_LISTEN,
// TEMPOOL_TLS_CERT and so on.
func FromEnvironment(c *cobra.Command) error {
	return command.FromEnvironment(c, "listen", "advertise", "tls-cert", "tls-key", "client-ca", "tokens", "peer-token",
		"socket-group")
}
