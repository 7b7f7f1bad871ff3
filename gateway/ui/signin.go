package ui

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/internal/loopback"
)

const (
	// signInFor is how long a browser stays signed in, and linkFor how long a sign-in link works.
	signInFor = 12 * time.Hour
	linkFor   = time.Minute
	// maxSignIns bounds the signed-in browsers, and maxLinks the links that were not used yet; further ones are refused.
	// maxSignInsEach and maxLinksEach bound those of one client, whose oldest goes first: nobody can sign another out.
	maxSignIns, maxSignInsEach = 1000, 20
	maxLinks, maxLinksEach     = 100, 5
)

// CookiePrefix begins the names of the dashboard's cookies.
const CookiePrefix = "tempool_ui_"

// identity is who signed in: a token, which is looked up again at each request, so that a withdrawn one ends the
// sign-in; or a client that the gateway knows by its Unix socket.
type identity struct {
	secret    string
	principal *access.Principal // at the sign-in
	until     time.Time         // set by grants
}

// ownerOf is the client on whom bounds are counted. Those of this host that are known by nothing but their address are
// one: each has many.
func ownerOf(p *access.Principal) string {
	if loopback.Host(p.Name) {
		return "loopback"
	}
	return p.Name
}

// grants are identities by a random name, bounded and short-lived.
type grants struct {
	most, each int // in all, and of one client
	life       time.Duration
	mu         sync.Mutex
	all        map[string]identity
}

func newGrants(most, each int, life time.Duration) *grants {
	return &grants{most: most, each: each, life: life, all: map[string]identity{}}
}

var errFull = api.Errorf(api.CodeUnavailable,
	"too many browsers are signed in at this agent, or have unused sign-in links; try again later, or restart the agent")

// add returns the new name of an identity. The oldest one of the same client makes room for it. It fails with errFull.
func (g *grants) add(i identity) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, oldest, own := time.Now(), "", 0
	for name, one := range g.all {
		if now.After(one.until) {
			delete(g.all, name)
		} else if ownerOf(one.principal) == ownerOf(i.principal) {
			if own++; oldest == "" || one.until.Before(g.all[oldest].until) {
				oldest = name
			}
		}
	}
	if own >= g.each {
		delete(g.all, oldest)
	}
	if len(g.all) >= g.most {
		return "", errFull
	}
	name := rand.Text()
	i.until = now.Add(g.life)
	g.all[name] = i
	return name, nil
}

// get returns the identity with a name, and forgets it with take.
func (g *grants) get(name string, take bool) (identity, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.all[name]
	if take || time.Now().After(one.until) {
		delete(g.all, name)
	}
	return one, time.Now().Before(one.until)
}

// cookieName distinguishes agents of one host: browsers share cookies between ports.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "0"
	}
	return CookiePrefix + port
}

// signInOf is the name of the sign-in that a request carries; "" without one.
func signInOf(r *http.Request) string {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// Principal is the client that has signed in with the browser that sends a request; nil if none has.
func (d *Dashboard) Principal(r *http.Request) *access.Principal {
	i, found := d.signIns.get(signInOf(r), false)
	switch {
	case !found:
		return nil
	case i.secret == "":
		return i.principal
	}
	return d.lookup(i.secret)
}

// lookup is the client of a token's secret; nil for an unknown one.
func (d *Dashboard) lookup(secret string) *access.Principal {
	if d.config.Lookup == nil {
		return nil
	}
	return d.config.Lookup(secret)
}

// secretOf is the token with which a request's browser signed in; "" if it did not, or by a link of the Unix socket.
func (d *Dashboard) secretOf(r *http.Request) string {
	i, _ := d.signIns.get(signInOf(r), false)
	return i.secret
}

// signIn signs the browser of a request in. It fails with errFull.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request, i identity) error {
	d.signIns.get(signInOf(r), true) // a new name with each sign-in
	name, err := d.signIns.add(i)
	if err == nil {
		d.setCookie(w, r, name, int(signInFor.Seconds()))
	}
	return err
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	d.signIns.get(signInOf(r), true)
	d.setCookie(w, r, "", -1)
}

func (d *Dashboard) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/ui", MaxAge: age, HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode,
	})
}

// formToken is what the forms of a page must send back: no other site can know it.
func (d *Dashboard) formToken(r *http.Request) string {
	mac := hmac.New(sha256.New, d.formKey)
	mac.Write([]byte(signInOf(r)))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// SignInLinkPath is where the page that tempool ui writes sends its link. The gateway lets requests of other origins
// through to it.
const SignInLinkPath = "/ui/signin/link"

func (v *visit) signInPage() error {
	link := v.r.URL.Query().Get("link")
	if link == "" || v.r.Method == http.MethodHead { // a HEAD request must not use the link up
		return v.askToSignIn(http.StatusOK, "")
	}
	if site := v.r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" { // as postSignInLink
		return v.askToSignIn(http.StatusForbidden,
			"A page of another site led here. Copy the link that tempool ui printed into the address bar.")
	}
	return v.useLink(link, func() { http.Redirect(v.w, v.r, "/ui/", http.StatusSeeOther) })
}

// useLink signs the browser in by a link, and answers.
func (v *visit) useLink(link string, answer func()) error {
	i, found := v.d.links.get(link, true)
	if !found {
		return v.askToSignIn(http.StatusForbidden,
			"This link was used before or is older than a minute. Run tempool ui again.")
	}
	if err := v.d.signIn(v.w, v.r, i); err != nil {
		return err
	}
	answer()
	return nil
}

// signedIn leads to the dashboard from an address of its own: a browser sends the cookie only with requests that such a
// page makes, and not after a redirect of a request that a file made.
const signedIn = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/ui/"><title>Signed in</title>
<p>Signed in. <a href="/ui/">Open the dashboard</a></p></html>
`

// postSignInLink signs in a browser that has opened the file of tempool ui. A file has the origin null, and its form
// knows no form_token; the link is the proof. Requests from pages of other sites are refused, so that none signs its
// visitor in as somebody else.
func (v *visit) postSignInLink() error {
	if origin := v.r.Header.Get("Origin"); origin != "" && origin != "null" && !sameOrigin(v.r, origin) {
		return api.Errorf(api.CodeForbidden, "a page of another site cannot sign in here; run tempool ui")
	}
	if err := parseForm(v.r); err != nil {
		return err
	}
	return v.useLink(v.r.PostFormValue("link"), func() {
		v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(v.w, signedIn) // fails only if the browser is gone
	})
}

func sameOrigin(r *http.Request, origin string) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return origin == scheme+r.Host
}

type signInView struct {
	Tokens bool
	Error  string
}

func (v *visit) askToSignIn(status int, failure string) error {
	return v.render(status, "signin", page{Title: "Sign in", Data: signInView{v.d.config.Lookup != nil, failure}})
}

func (v *visit) postSignIn() error {
	secret := strings.TrimSpace(v.r.PostFormValue("token"))
	wrong := ""
	switch p := v.d.lookup(secret); {
	case p == nil:
		wrong = "This gateway does not know the token. tempool token list shows the names of those it knows; tempool " +
			"token add makes one."
	case !p.Has(access.Read):
		wrong = p.Name + " does not have the right read, which the dashboard requires. Use another token."
	default:
		if err := v.d.signIn(v.w, v.r, identity{secret: secret, principal: p}); err != nil {
			return err
		}
		http.Redirect(v.w, v.r, "/ui/", http.StatusSeeOther)
		return nil
	}
	return v.askToSignIn(http.StatusForbidden, wrong)
}

func (v *visit) postSignOut() error {
	v.d.signOut(v.w, v.r)
	http.Redirect(v.w, v.r, "/ui/", http.StatusSeeOther)
	return nil
}
