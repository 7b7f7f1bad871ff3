package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"github.com/tempool/tempool/api"
)

// Security protects the TCP listener. An address other than loopback needs a certificate, and a token or client certificates.
type Security struct {
	// CertFile and KeyFile are the PEM files of the server's certificate; together they enable TLS.
	CertFile, KeyFile string
	// ClientCAFile is a PEM file of authorities. One of them must have signed a client's certificate.
	ClientCAFile string
	// TokenFile holds the bearer token that every request over TCP needs, except for /healthz and /readyz.
	TokenFile string
	// Advertise is the host, or host and port, that leases name; default: the address bound.
	Advertise string
}

// minToken is the least length of a token.
const minToken = 16

// authenticator decides which requests reach the routes.
type authenticator struct {
	tls      *tls.Config
	token    *[sha256.Size]byte // of the token, so that comparing does not leak its length
	loopback bool               // the listener is reachable from this machine only
	origins  *http.CrossOriginProtection
}

// newAuthenticator reads certificates and token. It fails for a listener that other machines can reach without authentication.
func newAuthenticator(c Config) (*authenticator, error) {
	a := &authenticator{origins: http.NewCrossOriginProtection()}
	s := c.Security
	if err := a.loadTLS(s); err != nil {
		return nil, err
	}
	if s.TokenFile != "" {
		text, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "cannot read the token: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if len(token) < minToken {
			return nil, api.Errorf(api.CodeInvalid, "the token in %s has %d characters; it needs at least %d", s.TokenFile, len(token), minToken)
		}
		sum := sha256.Sum256([]byte(token))
		a.token = &sum
	}
	if c.Listen == "" {
		return a, nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%q is not a listen address; write HOST:PORT, such as 127.0.0.1:7460: %w", c.Listen, err)
	}
	a.loopback = isLoopback(host)
	mutual := a.tls != nil && a.tls.ClientAuth == tls.RequireAndVerifyClientCert
	if !a.loopback && (a.tls == nil || a.token == nil && !mutual) {
		return nil, api.Errorf(api.CodeInvalid, "%s is reachable from other machines; configure a certificate and a token file or client certificates, or listen on 127.0.0.1", c.Listen)
	}
	return a, nil
}

func (a *authenticator) loadTLS(s Security) error {
	if s.CertFile == "" && s.KeyFile == "" {
		if s.ClientCAFile != "" {
			return api.Errorf(api.CodeInvalid, "client certificates need a server certificate and key; configure both")
		}
		return nil
	}
	certificate, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "cannot load certificate %q and key %q: %w", s.CertFile, s.KeyFile, err)
	}
	a.tls = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.ClientCAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(s.ClientCAFile)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "cannot read the authorities of client certificates: %w", err)
	}
	a.tls.ClientCAs = x509.NewCertPool()
	if !a.tls.ClientCAs.AppendCertsFromPEM(pem) {
		return api.Errorf(api.CodeInvalid, "%s contains no PEM certificate", s.ClientCAFile)
	}
	a.tls.ClientAuth = tls.RequireAndVerifyClientCert
	return nil
}

func (a *authenticator) scheme() string {
	if a.tls != nil {
		return "https"
	}
	return "http"
}

// withTLS adds TLS to a listener if there is a certificate.
func (a *authenticator) withTLS(l net.Listener) net.Listener {
	if a.tls == nil {
		return l
	}
	return tls.NewListener(l, a.tls)
}

// protect passes requests over the Unix socket, which its file mode protects, and requests over TCP that pass check.
func (a *authenticator) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOverSocket(r) {
			if err := a.check(r); err != nil {
				if err.Code == codeUnauthorized {
					w.Header().Set("WWW-Authenticate", `Bearer realm="tempool"`)
				}
				writeProblem(w, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (a *authenticator) check(r *http.Request) *api.Error {
	if a.token != nil && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" && !a.validToken(r.Header.Get("Authorization")) {
		return api.Errorf(codeUnauthorized, "missing or invalid bearer token; send Authorization: Bearer TOKEN")
	}
	// A web page must not reach a gateway through its visitor's browser: neither across origins nor by DNS rebinding.
	if err := a.origins.Check(r); err != nil {
		return api.Errorf(codeForbidden, "cross-origin request from a web page: %w", err)
	}
	if a.loopback && a.token == nil && !isLoopback(hostOnly(r.Host)) {
		return api.Errorf(codeForbidden, "host %q is not a loopback name, and this gateway listens on loopback only; use 127.0.0.1 or localhost", r.Host)
	}
	return nil
}

func (a *authenticator) validToken(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

func hostOnly(hostPort string) string {
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return host
	}
	return strings.Trim(hostPort, "[]")
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
