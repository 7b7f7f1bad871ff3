// Package ui is the dashboard: pages about the whole fleet, which every agent's gateway serves at /ui. The pages are
// rendered here; the one script keeps them up to date.
package ui

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/internal/transport"
)

// Config configures a Dashboard.
type Config struct {
	Fleet     Fleet
	HostID    string // of the agent that serves it
	Namespace string
	Logger    *slog.Logger
	// TemporalUI is the base URL of the Temporal Web UI, for links to workflows; "" omits them.
	TemporalUI string
	// Outage is for how long Temporal has not answered this agent; 0 while it does.
	Outage func() time.Duration
	// Lookup finds the client of a token's secret, nil for an unknown one. It is nil if the gateway has no tokens.
	Lookup func(secret string) *access.Principal
	// Endpoint is the base URL of the gateway, as others use it, and OwnEndpoint the agent's own way to it; "" is the
	// same.
	Endpoint    func() string
	OwnEndpoint string
	// Refuse answers a program with an error, as the other routes of the gateway do.
	Refuse func(w http.ResponseWriter, err error)
}

// Dashboard serves the pages. It is safe for concurrent use.
type Dashboard struct {
	config   Config
	memos    memos
	streams  streams
	signIns  *grants
	links    *grants
	formKey  []byte
	mux      *http.ServeMux
	routes   []string // their patterns
	pages    map[string]*template.Template
	versions map[string]string // of the static files, by name
}

//go:embed templates static
var files embed.FS

// New returns a Dashboard.
func New(config Config) *Dashboard {
	d := &Dashboard{
		config: config, signIns: newGrants(maxSignIns, maxSignInsEach, signInFor),
		links: newGrants(maxLinks, maxLinksEach, linkFor), formKey: make([]byte, 32),
		mux: http.NewServeMux(), versions: map[string]string{},
	}
	d.memos.sparks.most = mostSparks
	_, _ = rand.Read(d.formKey)          // never fails
	static, _ := files.ReadDir("static") // never fails: the files are part of the program
	for _, file := range static {
		content, _ := files.ReadFile("static/" + file.Name())
		sum := sha256.Sum256(content)
		d.versions[file.Name()] = hex.EncodeToString(sum[:6])
	}
	d.pages = d.parsePages()
	d.registerRoutes()
	return d
}

// visit is one request for a page, and who sends it.
type visit struct {
	d         *Dashboard
	w         http.ResponseWriter
	r         *http.Request
	principal *access.Principal
}

func (v *visit) ctx() context.Context { return v.r.Context() }

func (v *visit) pool(name string) Pool { return v.d.config.Fleet.Pool(name) }

// remote is the context for requests to gateways: with the visitor's own token, and with the agent's certificate for an
// operator and for one who has a certificate, too.
func (v *visit) remote(ctx context.Context) context.Context {
	return transport.WithAccess(ctx, v.access())
}

func (v *visit) access() transport.Access {
	return transport.Access{
		Token:       v.d.secretOf(v.r),
		Certificate: v.principal.Has(access.Admin) || v.r.TLS != nil && len(v.r.TLS.PeerCertificates) > 0,
		Own:         map[string]string{v.d.config.Endpoint(): v.d.config.OwnEndpoint},
	}
}

// Routes returns the patterns of all routes of the dashboard.
func (d *Dashboard) Routes() []string { return d.routes }

func (d *Dashboard) registerRoutes() {
	handle := func(pattern string, serve http.HandlerFunc) {
		d.routes = append(d.routes, pattern)
		d.mux.HandleFunc(pattern, serve)
	}
	// page registers a page, which needs the right right, and a pool in its path the permission to use it.
	page := func(pattern string, right access.Rights, serve func(*visit) error) {
		handle(pattern, func(w http.ResponseWriter, r *http.Request) {
			v := &visit{d, w, r, visitorIn(r).principal}
			err := v.authorize(right)
			if err == nil && r.Method == http.MethodPost && r.URL.Path != SignInLinkPath { // whose link is the proof
				err = d.checkForm(r)
			}
			if err == nil {
				err = serve(v)
			}
			if err != nil {
				v.fail(err)
			}
		})
	}
	page("GET /ui/{$}", access.Read, (*visit).fleetPage)
	page("GET /ui/pools/{pool}", access.Read, (*visit).poolPage)
	page("GET /ui/pools/{pool}/workers/{slot}", access.Read, (*visit).workerPage)
	page("GET /ui/events", access.Read, (*visit).eventsPage)
	page("GET /ui/live", access.Read, (*visit).live)
	page("GET /ui/sessions", access.Sessions, (*visit).sessionsPage)
	page("GET /ui/pools/{pool}/sessions/{session}", access.Sessions, (*visit).sessionPage)
	page("GET /ui/pools/{pool}/do/{action}", access.Admin, (*visit).confirmPage)
	page("POST /ui/pools/{pool}/do/{action}", access.Admin, (*visit).act)
	page("GET /ui/hosts/{host}/do/{action}", access.Admin, (*visit).confirmPage)
	page("POST /ui/hosts/{host}/do/{action}", access.Admin, (*visit).act)
	page("GET /ui/signin", 0, (*visit).signInPage)
	page("POST /ui/signin", 0, (*visit).postSignIn)
	page("POST "+SignInLinkPath, 0, (*visit).postSignInLink)
	page("POST /ui/signout", 0, (*visit).postSignOut)
	handle("GET /ui", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ui/", http.StatusSeeOther) })
	handle("GET /ui/static/{name}", d.static)
	handle("POST /ui/links", d.postLink)
	page("/ui/", 0, func(v *visit) error { return errNoPage })
}

var (
	errNoPage    = api.Errorf("not_found", "the dashboard has no such page; start at the fleet page")
	errStaleForm = api.Errorf(api.CodeForbidden,
		"this form is from another sign-in, or from before the agent restarted; go back, reload the page and try again")
)

// checkForm reads the form of a page, which must be one of this very sign-in.
func (d *Dashboard) checkForm(r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	if !hmac.Equal([]byte(r.PostFormValue("form_token")), []byte(d.formToken(r))) {
		return errStaleForm
	}
	return nil
}

func parseForm(r *http.Request) error {
	var tooLarge *http.MaxBytesError
	switch err := r.ParseForm(); {
	case errors.As(err, &tooLarge):
		return api.Errorf(api.CodePayloadTooLarge,
			"the form has more than %s; go back and shorten its texts, which are still there", format.Bytes(tooLarge.Limit))
	case err != nil:
		return api.Errorf(api.CodeInvalid, "the form cannot be read: %w", err)
	}
	return nil
}

// visitor is who sends a request, and the word that allows the page's one script to run: no other script of the
// gateway's address may, such as a worker's.
type visitor struct {
	principal *access.Principal
	nonce     string
}

type visitorKey struct{}

func visitorIn(r *http.Request) visitor { return r.Context().Value(visitorKey{}).(visitor) }

// Serve answers a request of a client with a page.
func (d *Dashboard) Serve(w http.ResponseWriter, r *http.Request, p *access.Principal) {
	header, nonce := w.Header(), rand.Text()
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+
		"'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "+
		"base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	}
	d.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, visitor{p, nonce})))
}

// maxFormBytes bounds the body of a form.
const maxFormBytes = 16 << 10

// authorize checks the rights of the visitor.
func (v *visit) authorize(right access.Rights) error {
	if right == 0 {
		return nil
	}
	if !v.principal.Has(access.Read) && !v.principal.Has(right) {
		return errSignIn
	}
	if !v.principal.Has(right) {
		return api.Errorf(api.CodeForbidden,
			"%s does not have the right %q, which this page requires; sign in as an operator: run tempool ui as the "+
				"agent's user, "+
				"or use a token with the right", v.principal.Name, right)
	}
	if host := v.r.PathValue("host"); host != "" && !v.principal.EveryPool() {
		return api.Errorf(api.CodeForbidden, "%s may not use every pool, which host %s serves; sign in with a token that may",
			v.principal.Name, host)
	}
	return v.mayUse(v.r.PathValue("pool"))
}

// mayUse checks that the visitor may use a pool; "" is none.
func (v *visit) mayUse(pool string) error {
	if pool == "" {
		return nil
	}
	if err := api.CheckPoolName(pool, api.CodePoolNotFound); err != nil {
		return err
	}
	if !v.principal.MayUse(pool) {
		return api.Errorf(api.CodeForbidden, "%s may not use pool %s; sign in with a token that may", v.principal.Name, pool)
	}
	return nil
}

// errSignIn sends the visitor to the sign-in page.
var errSignIn = api.Errorf(api.CodeUnauthorized, "sign in first")

func (d *Dashboard) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if version := r.URL.Query().Get("v"); version != "" && version == d.versions[name] {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, files, "static/"+name)
}

// postLink gives a client that is known by its token or its Unix socket a link that signs its browser in, as that
// client.
func (d *Dashboard) postLink(w http.ResponseWriter, r *http.Request) {
	p := visitorIn(r).principal
	i := identity{principal: p}
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); d.config.Lookup != nil &&
		strings.EqualFold(scheme, "Bearer") {
		i.secret = strings.TrimSpace(secret)
	}
	endpoint := d.config.Endpoint()
	switch {
	case signInOf(r) != "": // a browser needs none
		d.config.Refuse(w, api.Errorf(api.CodeForbidden, "a browser that has signed in gets no link"))
	case !p.Has(access.Read):
		d.config.Refuse(w, api.Errorf(api.CodeForbidden,
			"%s does not have the right read, which the dashboard requires; use a token that has it, or connect over the Unix "+
				"socket as the agent's user", p.Name))
	case !strings.HasPrefix(endpoint, "http"):
		d.config.Refuse(w, api.Errorf(api.CodeUnavailable,
			"no browser can reach this gateway, because it has no TCP listener; start the agent with --listen 127.0.0.1:7460"))
	default:
		name, err := d.links.add(i)
		if err != nil {
			d.config.Refuse(w, errFull)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(tempool.DashboardLink{URL: endpoint + "/ui/signin?link=" + name, Name: p.Name,
			Rights: p.Rights.Names()})
	}
}
