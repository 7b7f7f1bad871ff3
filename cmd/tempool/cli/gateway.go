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

// credentialFlags are the flags of a command that asks gateways. The files are read before c runs.
func (a *app) credentialFlags(c *cobra.Command) {
	var credentials tempool.Credentials
	f := c.Flags()
	f.StringVar(&credentials.TokenFile, "token-file", "",
		"file with the gateways' bearer token (default: $TEMPOOL_TOKEN_FILE, or the token in $TEMPOOL_TOKEN)")
	f.StringVar(&credentials.CAFile, "ca-file", "",
		"PEM file with the CA certificates of the gateways (default: $TEMPOOL_CA_FILE, else the system's)")
	f.StringVar(&credentials.CertFile, "cert-file", "",
		"PEM file with this client's certificate (default: $TEMPOOL_CERT_FILE)")
	f.StringVar(&credentials.KeyFile, "key-file", "",
		"PEM file with the certificate's private key (default: $TEMPOOL_KEY_FILE)")
	for _, name := range []string{"token-file", "ca-file", "cert-file", "key-file"} {
		mustDefine(c, c.MarkFlagFilename(name))
	}
	c.PreRunE = func(*cobra.Command, []string) error {
		a.running = true
		return credentials.Apply(&a.options)
	}
}

// checkEndpoints returns the endpoints of the flag, else those of the environment, if their form is right.
func checkEndpoints(endpoints []string) ([]string, error) {
	from := "--gateway"
	if len(endpoints) == 0 {
		from = envGateway
		endpoints = strings.FieldsFunc(os.Getenv(envGateway), func(r rune) bool { return r == ',' || r == ' ' })
	}
	for _, endpoint := range endpoints {
		if !isEndpoint(endpoint) {
			return nil, usagef("%s has %q; write http://HOST:PORT, https://HOST:PORT or unix:PATH", from, endpoint)
		}
	}
	return endpoints, nil
}

func isEndpoint(text string) bool {
	if path, socket := strings.CutPrefix(text, "unix:"); socket {
		return path != ""
	}
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// gatewaysCommand makes c run with a connection to the gateways that its flags select, or to the control plane that
// knows them.
func (a *app) gatewaysCommand(c *cobra.Command,
	run func(ctx context.Context, cp controlPlane, args []string) error) *cobra.Command {
	var endpoints []string
	c.Flags().StringSliceVar(&endpoints, "gateway", nil,
		"gateway endpoints, http://HOST:PORT or unix:PATH, to call without Temporal (default: $"+envGateway+
			", else the endpoints in the pool's roster)")
	completeFlag(c, "gateway", "http://127.0.0.1:7460")
	a.credentialFlags(c)
	checkFlags(c, func(*cobra.Command) (err error) {
		endpoints, err = checkEndpoints(endpoints)
		return err
	})
	return a.localCommand(c, func(ctx context.Context, args []string) error {
		a.options.Gateways = endpoints
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
func (a *app) gatewayCommand(c *cobra.Command,
	run func(ctx context.Context, p *tempool.Pool, args []string) error) *cobra.Command {
	return a.gatewaysCommand(c, func(ctx context.Context, cp controlPlane, args []string) error {
		name, _, _ := strings.Cut(args[0], "/") // POOL or POOL/N
		err := run(ctx, cp.Pool(name).With(tempool.CallOptions{}), args)
		if ctx.Err() != nil {
			return api.Errorf(codeInterrupted, "interrupted; calls in flight are cancelled")
		}
		return err
	})
}
