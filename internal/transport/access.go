package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/url"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/loopback"
	"github.com/tempool/tempool/internal/redact"
)

// Access is how the requests of one context reach gateways, in place of the Transport's own credentials.
type Access struct {
	// Token is sent; "" sends none.
	Token string
	// Certificate lets requests use the Transport's client certificate.
	Certificate bool
	// Own are the endpoints of the own gateway, by where it is reached instead, "" for there. An endpoint that another
	// host reports gets neither a token on loopback nor a request over a Unix socket: both would reach this machine and
	// not that host.
	Own map[string]string
}

type accessKey struct{}

// WithAccess makes the requests of a context use a.
func WithAccess(ctx context.Context, a Access) context.Context {
	return context.WithValue(ctx, accessKey{}, a)
}

// accessTo is the endpoint at which a gateway is reached from a context, the token for it, and whether to show the
// client certificate.
func (t *Transport) accessTo(ctx context.Context, asked string) (endpoint, token string, certificate bool, err error) {
	access, given := ctx.Value(accessKey{}).(Access)
	if !given {
		return asked, t.token, true, nil
	}
	if instead, own := access.Own[asked]; own {
		return cmp.Or(instead, asked), access.Token, true, nil
	}
	if strings.HasPrefix(asked, "unix:") || access.Token != "" && onLoopback(asked) {
		return "", "", false, api.Errorf(api.CodeUnavailable,
			"the gateway at %s is reachable only from its own host; give its agent an address that others reach with "+
				"--listen, and TLS", redact.URLs(asked))
	}
	return asked, access.Token, access.Certificate, nil
}

// SendsToken reports whether requests of a context carry a token.
func (t *Transport) SendsToken(ctx context.Context) bool {
	access, given := ctx.Value(accessKey{}).(Access)
	if !given {
		return t.token != ""
	}
	return access.Token != ""
}

func onLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && loopback.Host(u.Hostname())
}

// withoutCertificate is a configuration that shows no client certificate.
func withoutCertificate(config *tls.Config) *tls.Config {
	if config == nil {
		return nil
	}
	config = config.Clone()
	config.Certificates, config.GetClientCertificate = nil, nil
	return config
}
