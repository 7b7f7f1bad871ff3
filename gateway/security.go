package gateway

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/peer"
	"github.com/tempool/tempool/gateway/ui"
	"github.com/tempool/tempool/internal/loopback"
	"github.com/tempool/tempool/internal/redact"
)

// Security protects the TCP listener. An address other than loopback needs a certificate, and tokens or client
// certificates. The files are read again when they change.
type Security struct {
	// CertFile and KeyFile are the PEM files of the server's certificate; together they enable TLS.
	CertFile, KeyFile string
	// ClientCAFile is a PEM file of authorities. One of them must have signed a client's certificate.
	ClientCAFile string
	// TokensFile is an access.File. Every request over TCP then needs the secret of one of its tokens, except for /healthz
	// and /readyz.
	TokensFile string
	// PeerTokenFile holds the secret, the same on all hosts, by which the gateways of a pool's hosts know each other; the
	// certificates of ClientCAFile do so, too.
	PeerTokenFile string
	// Advertise is the base URL that leases and rosters name, such as https://web-1:7460; default: the address bound.
	Advertise string
	// SocketGroup is the name or number of the group whose members may open the Unix socket; default: nobody but this
	// user.
	SocketGroup string
}

// authenticator finds out who sends a request.
type authenticator struct {
	certificates *certificates  // nil without TLS
	tokens       *access.Tokens // nil without a tokens file
	mutual       bool           // TLS asks for a client certificate
	loopback     bool           // the listener is reachable from this machine only
	origins      *http.CrossOriginProtection
	peers        socketPeers
	hostID       string
	secret       *peer.Secret // nil without a peer token
	hosts        *hostNames
	dashboard    *ui.Dashboard // knows the browsers that have signed in
	files        []*watchedFiles
}

// newAuthenticator reads the files of c. It fails for a listener that other machines can reach without authentication.
func newAuthenticator(c Config) (*authenticator, error) {
	a := &authenticator{origins: http.NewCrossOriginProtection(), hostID: c.HostID, hosts: &hostNames{list: c.Hosts},
		peers: socketPeers{inWorker: c.InWorker, group: c.Security.SocketGroup != ""}}
	for _, method := range []string{"POST ", "DELETE "} {
		a.origins.AddInsecureBypassPattern(method + "/mcp/{pool}") // see admitPage
	}
	a.origins.AddInsecureBypassPattern("POST " + ui.SignInLinkPath) // which checks the origin itself
	s := c.Security
	var err error
	if a.certificates, err = openCertificates(s); err != nil {
		return nil, err
	}
	if a.certificates != nil {
		a.watch(a.certificates.Reload, s.CertFile, s.KeyFile, s.ClientCAFile)
	}
	a.mutual = s.ClientCAFile != ""
	if s.TokensFile != "" {
		if a.tokens, err = access.OpenTokens(s.TokensFile); err != nil {
			return nil, err
		}
		a.watch(a.tokens.Reload, s.TokensFile)
	}
	if s.PeerTokenFile != "" {
		if a.secret, err = peer.OpenSecret(s.PeerTokenFile); err != nil {
			return nil, err
		}
		a.watch(a.secret.Reload, s.PeerTokenFile)
	}
	if s.Advertise != "" {
		if u, err := url.Parse(s.Advertise); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, api.Errorf(api.CodeInvalid,
				"--advertise is %q; write the base URL that clients reach, such as https://web-1:7460", redact.URLs(s.Advertise))
		}
	}
	if _, err := lookUpGroup(s.SocketGroup); err != nil {
		return nil, err
	}
	if c.Listen == "" {
		return a, nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid,
			"--listen is %q, which is not an address; write HOST:PORT, such as 127.0.0.1:7460: %w", c.Listen, err)
	}
	if a.loopback = loopback.Host(host); a.loopback {
		return a, nil
	}
	if a.certificates == nil || a.tokens == nil && !a.mutual {
		return nil, api.Errorf(api.CodeInvalid,
			"--listen %s is reachable from other machines; set --tls-cert and --tls-key, and --tokens or --client-ca, or "+
				"listen on 127.0.0.1", c.Listen)
	}
	if ip := net.ParseIP(host); s.Advertise == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return nil, api.Errorf(api.CodeInvalid,
			"--listen %s is every address of this machine; name the one that clients reach with --advertise https://HOST:PORT",
			c.Listen)
	}
	return a, nil
}

// CheckSecurity fails with CodeInvalid if a gateway could not listen on an address, "" for none, with s: before
// anything else is started.
func CheckSecurity(listen string, s Security) error {
	_, err := newAuthenticator(Config{Listen: listen, Security: s})
	return err
}

func (a *authenticator) watch(reload func() error, names ...string) {
	a.files = append(a.files, &watchedFiles{reload: reload, names: names})
}

// nobody is a client without any right; /healthz and /readyz need none.
var nobody = &access.Principal{Name: "nobody"}

// protect finds out who sends each request. It rejects a request of a client that it does not know, and closes the
// connection of one that has too many.
func (g *Gateway) protect(auth *authenticator, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connectionOf(r)
		if r.ProtoMajor != 1 { // it shares the connection with others, and would have their rights
			writeProblem(w, api.Errorf(api.CodeInvalid, "the gateway speaks HTTP/1.1, not %s", r.Proto))
			return
		}
		forwarded := peer.Forwarded(r.Header)
		principal, err := auth.identify(c, r)
		client := principal
		if c.caller != nil { // the connection carries the requests of many clients
			client = &access.Principal{Name: "host " + c.caller.From}
		}
		if err == nil && c.peer == nil && principal != nobody && c.client != client.Name {
			if c.client = client.Name; !g.clients.enter(c, c.client) {
				w.Header().Set("Connection", "close")
				err = api.Errorf(api.CodeRateLimited,
					"%s has %d connections, the maximum per client (--max-client-connections); reuse connections", c.client,
					g.clients.most)
			}
		}
		if err != nil {
			if errors.Is(err, api.ErrUnauthorized) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="tempool"`)
			}
			if forwarded {
				peer.RefusePeer(w.Header())
			}
			writeProblem(w, err)
			return
		}
		c.principal = principal
		defer func() {
			c.body = nil // the connection may be idle for long
			c.share.release()
		}()
		next.ServeHTTP(w, r)
	})
}

// identify returns the client that sends r over c.
func (a *authenticator) identify(c *connection, r *http.Request) (principal *access.Principal, err error) {
	c.caller = nil
	forwarded := peer.Forwarded(r.Header)
	if forwarded {
		if principal, c.caller, err = a.fromPeer(c, r); err != nil {
			return nil, err
		}
	}
	if c.peer != nil && !forwarded {
		if c.always == nil {
			c.always = a.peers.principal(*c.peer)
		}
		return c.always, nil
	}
	open := r.URL.Path == "/healthz" || r.URL.Path == "/readyz" || isPreflight(r)
	if principal == nil {
		principal = nobody
	}
	if !open && !forwarded {
		if principal = a.client(c, r); principal == nil {
			return nil, api.Errorf(api.CodeUnauthorized, "missing or invalid bearer token; send Authorization: Bearer TOKEN")
		}
	}
	// A web page must not reach a gateway through its visitor's browser: neither across origins nor by DNS rebinding.
	if err := a.origins.Check(acting(r, forwarded)); err != nil {
		return nil, api.Errorf(api.CodeForbidden, "cross-origin request from a web page; send it from a program, or from a "+
			"page of this gateway: %w", err)
	}
	if a.loopback && a.tokens == nil && !loopback.Host(hostOnly(r.Host)) {
		return nil, api.Errorf(api.CodeForbidden,
			"host %q is not a loopback name, and this gateway listens on loopback only; use 127.0.0.1 or localhost", r.Host)
	}
	return principal, nil
}

// client is the client of a request over TCP that no gateway has forwarded; nil if it does not say whose it is.
func (a *authenticator) client(c *connection, r *http.Request) *access.Principal {
	p := a.overTCP(c, r)
	if visitor := a.inBrowser(r); visitor != nil {
		return visitor
	}
	return p
}

// acting is r as the check of origins must see it, which lets GET, HEAD and OPTIONS pass: workers of protocol none, and
// WebSockets, may act on those, too. But a page may link to one here, and a worker's page, which has an origin of its
// own, may load what it needs from the URL of its lease, which has a token. A forwarded request was checked before.
func acting(r *http.Request, forwarded bool) *http.Request {
	h := r.Header
	link := h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document"
	ofPage := h.Get("Origin") != "" || h.Get("Sec-Fetch-Site") != ""
	if forwarded || link || !ofPage || strings.HasPrefix(r.URL.Path, "/v1/leases/") {
		return r
	}
	acts := *r
	acts.Method = http.MethodPost
	return &acts
}

// inBrowser returns the client that sends a request to the dashboard from a browser that has signed in, or a browser
// that may do so; nil for every other request. Its pages may be read as the other routes; only there a cookie stands
// for a token.
func (a *authenticator) inBrowser(r *http.Request) *access.Principal {
	if !isDashboard(r.URL.Path) || r.Header.Get("Authorization") != "" {
		return nil
	}
	if p := a.dashboard.Principal(r); p != nil {
		return p
	}
	if a.tokens != nil {
		return nobody
	}
	return nil
}

// overTCP returns the client of a token, else of a certificate, else of a loopback address; nil for an unknown token.
func (a *authenticator) overTCP(c *connection, r *http.Request) *access.Principal {
	if a.tokens != nil {
		scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil
		}
		return a.tokens.Lookup(strings.TrimSpace(secret))
	}
	if c.always == nil {
		name := c.host
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			name = "certificate " + r.TLS.PeerCertificates[0].Subject.CommonName
		}
		c.always = &access.Principal{Name: name, Rights: access.Client, MaxPriority: access.MaxPriority}
	}
	return c.always
}

func hostOnly(hostPort string) string {
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return host
	}
	return strings.Trim(hostPort, "[]")
}
