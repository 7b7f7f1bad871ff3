package cli

import (
	"context"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// envGateway lists the gateways if --gateway does not; the SDKs read it, too.
const envGateway = "TEMPOOL_GATEWAY"

// gatewayFlags select the gateways of a command, and how to authenticate to them.
type gatewayFlags struct {
	endpoints   []string
	credentials tempool.Credentials
}

func (g *gatewayFlags) flags(a *app, c *cobra.Command) {
	c.Flags().StringSliceVar(&g.endpoints, "gateway", nil,
		"gateway endpoints, http://HOST:PORT or unix:PATH, to call without Temporal (default: $"+envGateway+
			", else the endpoints in the pool's roster)")
	completeFlag(c, "gateway", "http://127.0.0.1:7460")
	g.credentialFlags(a, c)
	checkFlags(c, func(*cobra.Command) error { return g.check() })
}

// credentialFlags are the flags of a command that asks the gateways which Temporal knows. The files are read before c
// runs.
func (g *gatewayFlags) credentialFlags(a *app, c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&g.credentials.TokenFile, "token-file", "",
		"file with the gateways' bearer token (default: $TEMPOOL_TOKEN_FILE, or the token in $TEMPOOL_TOKEN)")
	f.StringVar(&g.credentials.CAFile, "ca-file", "",
		"PEM file with the CA certificates of the gateways (default: $TEMPOOL_CA_FILE, else the system's)")
	f.StringVar(&g.credentials.CertFile, "cert-file", "",
		"PEM file with this client's certificate (default: $TEMPOOL_CERT_FILE)")
	f.StringVar(&g.credentials.KeyFile, "key-file", "",
		"PEM file with the certificate's private key (default: $TEMPOOL_KEY_FILE)")
	for _, name := range []string{"token-file", "ca-file", "cert-file", "key-file"} {
		mustDefine(c, c.MarkFlagFilename(name))
	}
	c.PreRunE = func(*cobra.Command, []string) error {
		a.running = true
		return g.credentials.Apply(&a.options)
	}
}

// check takes the endpoints from the environment if there is no flag, and checks their form.
func (g *gatewayFlags) check() error {
	from := "--gateway"
	if len(g.endpoints) == 0 {
		from = envGateway
		g.endpoints = strings.FieldsFunc(os.Getenv(envGateway), func(r rune) bool { return r == ',' || r == ' ' })
	}
	for _, endpoint := range g.endpoints {
		if !isEndpoint(endpoint) {
			return usagef("%s has %q; write http://HOST:PORT, https://HOST:PORT or unix:PATH", from, endpoint)
		}
	}
	return nil
}

func isEndpoint(text string) bool {
	if path, socket := strings.CutPrefix(text, "unix:"); socket {
		return path != ""
	}
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// gatewaysCommand makes c run with a connection to the gateways that g selects, or to the control plane that knows
// them.
func (a *app) gatewaysCommand(c *cobra.Command, g *gatewayFlags,
	run func(ctx context.Context, cp controlPlane, args []string) error) *cobra.Command {
	g.flags(a, c)
	return a.localCommand(c, func(ctx context.Context, args []string) error {
		a.options.Gateways = g.endpoints
		dialled := false
		err := a.withControlPlane(ctx, func(cp controlPlane) error {
			dialled = true
			return run(ctx, cp, args)
		})
		if !dialled && api.CodeOf(err) == api.CodeUnavailable {
			return api.Errorf(api.CodeUnavailable,
				"%s; a gateway may still serve calls: name it with --gateway http://127.0.0.1:7460", message(err))
		}
		return err
	})
}

// gatewayCommand is gatewaysCommand with the pool that the first argument names.
func (a *app) gatewayCommand(c *cobra.Command, g *gatewayFlags,
	run func(ctx context.Context, p pool, args []string) error) *cobra.Command {
	return a.gatewaysCommand(c, g, func(ctx context.Context, cp controlPlane, args []string) error {
		name, _, _ := strings.Cut(args[0], "/") // POOL or POOL/N
		err := run(ctx, cp.Pool(name), args)
		if ctx.Err() != nil {
			return api.Errorf(codeInterrupted, "interrupted; calls in flight are cancelled")
		}
		return err
	})
}
