package ui

import (
	"io"
	"net/http"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
)

// SignInLinkPath is where the page that tempool ui writes sends its link. The gateway lets requests of other origins
// through to it.
const SignInLinkPath = "/ui/signin/link"

func (v *visit) signInPage() error {
	link := v.r.URL.Query().Get("link")
	if link == "" || v.r.Method == http.MethodHead { // a HEAD request must not use the link up
		return v.render(http.StatusOK, "signin", page{Title: "Sign in", Data: signInView{Tokens: v.d.config.Lookup != nil}})
	}
	return v.useLink(link, func() { http.Redirect(v.w, v.r, "/ui/", http.StatusSeeOther) })
}

// useLink signs the browser in by a link, and answers.
func (v *visit) useLink(link string, answer func()) error {
	i, found := v.d.links.get(link, true)
	if !found {
		return v.render(http.StatusForbidden, "signin", page{Title: "Sign in", Data: signInView{
			Tokens: v.d.config.Lookup != nil, Error: "This link was used before or is older than a minute. Run tempool ui " +
				"again.",
		}})
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

func (v *visit) postSignIn() error {
	secret := strings.TrimSpace(v.r.PostFormValue("token"))
	wrong := ""
	switch p := v.d.lookup(secret); {
	case p == nil:
		wrong = "This gateway does not know the token. tempool token list shows the names of those it knows; tempool " +
			"token add " +
			"makes one."
	case !p.Has(access.Read):
		wrong = p.Name + " does not have the right read, which the dashboard requires. Use another token."
	default:
		if err := v.d.signIn(v.w, v.r, identity{secret, p}); err != nil {
			return err
		}
		http.Redirect(v.w, v.r, "/ui/", http.StatusSeeOther)
		return nil
	}
	return v.render(http.StatusForbidden, "signin",
		page{Title: "Sign in", Data: signInView{Tokens: v.d.config.Lookup != nil, Error: wrong}})
}

func (v *visit) postSignOut() error {
	v.d.signOut(v.w, v.r)
	http.Redirect(v.w, v.r, "/ui/", http.StatusSeeOther)
	return nil
}
