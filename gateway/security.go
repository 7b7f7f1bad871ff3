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

// Security protects the TCP listener. Beyond loopback there must be a certificate, and a token or client certificates.
type Security struct {
	// CertFile and KeyFile are the PEM files of the server's certificate; together they turn TLS on.
	CertFile, KeyFile string
	// ClientCAFile is a PEM file; a client's certificate must be signed by one of its authorities.
	ClientCAFile string
	// TokenFile holds the bearer token that every request over TCP must bring, but those for /healthz and /readyz.
	TokenFile string
	// Advertise is the host, or host and port, that leases name; default: the address bound.
	Advertise string
}

// minToken is the shortest token taken.
const minToken = 16

// guard decides which requests reach the routes.
type guard struct {
	tls      *tls.Config
	token    *[sha256.Size]byte // of the token, so that the compare tells nothing of its length
	loopback bool               // only this machine can reach the listener
	origins  *http.CrossOriginProtection
}

// newGuard reads certificates and token, and refuses a listener that they leave open to strangers.
func newGuard(c Config) (*guard, error) {
	g := &guard{origins: http.NewCrossOriginProtection()}
	s := c.Security
	if err := g.readTLS(s); err != nil {
		return nil, err
	}
	if s.TokenFile != "" {
		text, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "the gateway's token cannot be read: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if len(token) < minToken {
			return nil, api.Errorf(api.CodeInvalid, "the token in %s has %d characters; it needs at least %d", s.TokenFile, len(token), minToken)
		}
		sum := sha256.Sum256([]byte(token))
		g.token = &sum
	}
	if c.Listen == "" {
		return g, nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "the gateway cannot listen on %q; write HOST:PORT, such as 127.0.0.1:7460: %w", c.Listen, err)
	}
	g.loopback = isLoopback(host)
	mutual := g.tls != nil && g.tls.ClientAuth == tls.RequireAndVerifyClientCert
	if !g.loopback && (g.tls == nil || g.token == nil && !mutual) {
		return nil, api.Errorf(api.CodeInvalid, "%s is reachable from other machines: give the gateway a certificate and a token file or client certificates, or listen on 127.0.0.1", c.Listen)
	}
	return g, nil
}

func (g *guard) readTLS(s Security) error {
	if s.CertFile == "" && s.KeyFile == "" {
		if s.ClientCAFile != "" {
			return api.Errorf(api.CodeInvalid, "client certificates need a certificate and key of the gateway's own")
		}
		return nil
	}
	certificate, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "the gateway's certificate %q and key %q cannot be used: %w", s.CertFile, s.KeyFile, err)
	}
	g.tls = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.ClientCAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(s.ClientCAFile)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "the authorities of client certificates cannot be read: %w", err)
	}
	g.tls.ClientCAs = x509.NewCertPool()
	if !g.tls.ClientCAs.AppendCertsFromPEM(pem) {
		return api.Errorf(api.CodeInvalid, "%s holds no certificate in PEM form", s.ClientCAFile)
	}
	g.tls.ClientAuth = tls.RequireAndVerifyClientCert
	return nil
}

func (g *guard) scheme() string {
	if g.tls != nil {
		return "https"
	}
	return "http"
}

// secure puts TLS on a listener, if there is a certificate.
func (g *guard) secure(l net.Listener) net.Listener {
	if g.tls == nil {
		return l
	}
	return tls.NewListener(l, g.tls)
}

// protect lets through what comes over the Unix socket, whose file mode guards it, and over TCP what passes check.
func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if socket, _ := r.Context().Value(overSocket{}).(bool); !socket {
			if err := g.check(r); err != nil {
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

func (g *guard) check(r *http.Request) *api.Error {
	if g.token != nil && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" && !g.knows(r.Header.Get("Authorization")) {
		return api.Errorf(codeUnauthorized, "this gateway wants the header Authorization: Bearer TOKEN, with the token of its token file")
	}
	// A web page must not reach a gateway through its visitor's browser, neither across origins nor by a name made to
	// resolve to this machine.
	if err := g.origins.Check(r); err != nil {
		return api.Errorf(codeForbidden, "the request comes from a web page of another origin: %w", err)
	}
	if g.loopback && g.token == nil && !isLoopback(hostOnly(r.Host)) {
		return api.Errorf(codeForbidden, "the request asks for host %q, but this gateway listens on loopback alone; call it by 127.0.0.1 or localhost", r.Host)
	}
	return nil
}

func (g *guard) knows(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
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
