package ui

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tempool/tempool/gateway/access"
)

const (
	// signInFor is how long a browser stays signed in, and linkFor how long a sign-in link works.
	signInFor = 12 * time.Hour
	linkFor   = time.Minute
	// maxSignIns bounds the signed-in browsers, and maxLinks the links that were not used yet. The oldest go first.
	maxSignIns, maxLinks = 1000, 100
)

// CookiePrefix begins the names of the dashboard's cookies.
const CookiePrefix = "tempool_ui_"

// identity is who signed in: a token, which is looked up again at each request, so that a withdrawn one ends the sign-in; or a client that
// the gateway knows by its Unix socket.
type identity struct {
	secret    string
	principal *access.Principal
}

// grant is an identity until a time.
type grant struct {
	identity
	until time.Time
}

// grants are bounded and short-lived, by a random name.
type grants struct {
	most int
	life time.Duration
	mu   sync.Mutex
	all  map[string]grant
}

func newGrants(most int, life time.Duration) *grants {
	return &grants{most: most, life: life, all: map[string]grant{}}
}

// add returns the new name of an identity.
func (g *grants) add(i identity) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, oldest := time.Now(), ""
	for name, one := range g.all {
		if now.After(one.until) {
			delete(g.all, name)
		} else if oldest == "" || one.until.Before(g.all[oldest].until) {
			oldest = name
		}
	}
	if len(g.all) >= g.most {
		delete(g.all, oldest)
	}
	name := rand.Text()
	g.all[name] = grant{i, now.Add(g.life)}
	return name
}

// get returns the identity with a name, and forgets it with take.
func (g *grants) get(name string, take bool) (identity, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one, found := g.all[name]
	if take || time.Now().After(one.until) {
		delete(g.all, name)
	}
	return one.identity, found && time.Now().Before(one.until)
}

func (g *grants) remove(name string) { g.get(name, true) }

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
	case d.config.Lookup == nil:
		return nil
	}
	return d.config.Lookup(i.secret)
}

// secretOf is the token with which a request's browser signed in; "" if it did not, or by a link of the Unix socket.
func (d *Dashboard) secretOf(r *http.Request) string {
	i, _ := d.signIns.get(signInOf(r), false)
	return i.secret
}

// signIn signs the browser of a request in.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request, i identity) {
	d.signIns.remove(signInOf(r)) // a new name with each sign-in
	d.setCookie(w, r, d.signIns.add(i), int(signInFor.Seconds()))
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	d.signIns.remove(signInOf(r))
	d.setCookie(w, r, "", -1)
}

func (d *Dashboard) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/ui", MaxAge: age, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// formToken is what the forms of a page must send back: no other site can know it.
func (d *Dashboard) formToken(r *http.Request) string {
	mac := hmac.New(sha256.New, d.formKey)
	mac.Write([]byte(signInOf(r)))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (d *Dashboard) formTokenFits(r *http.Request) bool {
	return hmac.Equal([]byte(r.PostFormValue("form_token")), []byte(d.formToken(r)))
}
