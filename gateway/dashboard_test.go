package gateway

import (
	"context"
	"iter"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/ui"
	"github.com/tempool/tempool/lifecycle"
)

// actedFleet has one pool, p, without workers, and one host. It counts what visitors of a dashboard have done. Its
// other methods are not reached.
type actedFleet struct {
	ui.Fleet
	acted int
}

func (f *actedFleet) act() error { f.acted++; return nil }

func (f *actedFleet) Events(ctx context.Context, o tempool.EventOptions) iter.Seq2[api.Event, error] {
	return func(func(api.Event, error) bool) {
		if o.Follow {
			<-ctx.Done()
		}
	}
}

func (*actedFleet) HostStatus(context.Context, string) (api.HostStatus, error) {
	return api.HostStatus{}, nil
}
func (*actedFleet) Hosts(context.Context) ([]tempool.Host, error) {
	return []tempool.Host{{ID: "h"}}, nil
}
func (f *actedFleet) DrainHost(context.Context, string, string) ([]tempool.Moved, error) {
	return nil, f.act()
}
func (f *actedFleet) UndrainHost(context.Context, string) error         { return f.act() }
func (f *actedFleet) Checkin(context.Context, api.CheckinRequest) error { return f.act() }
func (*actedFleet) ListPools(context.Context) ([]string, error)         { return []string{"p"}, nil }
func (f *actedFleet) Pool(string) ui.Pool                               { return actedPool{fleet: f} }

type actedPool struct {
	ui.Pool
	fleet *actedFleet
}

func (actedPool) Status(context.Context) (api.PoolStatus, error) {
	return api.PoolStatus{Pool: "p"}, nil
}
func (actedPool) State(context.Context, int) (api.WorkerState, error) {
	return api.WorkerState{Lease: &api.Lease{ID: "p.0.1.1"}}, nil
}
func (actedPool) History(context.Context, int) ([]lifecycle.Transition, error) { return nil, nil }
func (actedPool) Logs(context.Context, tempool.LogOptions, func(api.LogLine)) error {
	return api.Errorf(api.CodeUnavailable, "no log here")
}
func (actedPool) Sessions(context.Context, string, int) (*tempool.SessionList, error) {
	return &tempool.SessionList{}, nil
}
func (actedPool) Session(string) ui.Session { return absentSession{} }
func (p actedPool) ScaleTo(context.Context, api.ScaleRequest) (r api.ScaleResult, err error) {
	return r, p.fleet.act()
}
func (p actedPool) HaltRollout(context.Context, api.Control) (r api.Rollout, err error) {
	return r, p.fleet.act()
}
func (p actedPool) Restart(context.Context, api.RestartRequest) (r api.RestartResult, err error) {
	return r, p.fleet.act()
}
func (p actedPool) Stop(context.Context, string) (r api.PoolStopResult, err error) {
	return r, p.fleet.act()
}
func (p actedPool) Signal(context.Context, int, string, api.Control) error { return p.fleet.act() }

type absentSession struct{ ui.Session }

func (absentSession) Get(context.Context) (*tempool.SessionState, error) {
	return nil, api.Errorf(api.CodeSessionNotFound, "no session here")
}

// browser sends requests to a gateway as a browser does, with its cookies and without following redirects.
type browser struct {
	*http.Client
	t    *testing.T
	base string
}

func newBrowser(t *testing.T, base string) browser {
	b := browser{clientWith(t, nil), t, base}
	b.Jar = must(cookiejar.New(nil))
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return b
}

// get requires the status of the answer and returns its page.
func (b browser) get(want int, path string, headers ...string) string {
	b.t.Helper()
	return b.send(want, http.MethodGet, path, nil, headers...)
}

// post is get for a form.
func (b browser) post(want int, path string, form url.Values, headers ...string) string {
	b.t.Helper()
	headers = append(headers, "Content-Type", "application/x-www-form-urlencoded")
	return b.send(want, http.MethodPost, path, form, headers...)
}

func (b browser) send(want int, method, path string, form url.Values, headers ...string) string {
	b.t.Helper()
	body := strings.NewReader(form.Encode())
	a := ask(b.t, b.Client, requestOf(b.t.Context(), b.t, method, b.base+path, body, headers...))
	require.Equal(b.t, want, a.status, "%s", a.body)
	return string(a.body)
}

// cookies are those that the browser sends to the dashboard.
func (b browser) cookies() []*http.Cookie { return b.Jar.Cookies(must(url.Parse(b.base + "/ui/"))) }

func formToken(page string) string {
	_, after, _ := strings.Cut(page, `name="form_token" value="`)
	token, _, _ := strings.Cut(after, `"`)
	return token
}

func TestTheDashboardSignsInWithATokenForItselfOnly(t *testing.T) {
	tokens, secret := tokensFile(t, []string{"*"}, "read", "admin")
	e := parallel(t, 0, withTokens(tokens))
	b := newBrowser(t, e.gateway.Endpoint())
	b.get(http.StatusSeeOther, "/ui/")
	form := url.Values{"token": {secret}, "form_token": {formToken(b.get(http.StatusOK, "/ui/signin"))}}
	// another site signs nobody in
	b.post(http.StatusForbidden, "/ui/signin", form, "Sec-Fetch-Site", "cross-site", "Origin", "http://evil.example")
	b.post(http.StatusSeeOther, "/ui/signin", form)
	b.get(http.StatusOK, "/ui/pools/p")

	b.get(http.StatusUnauthorized, "/v1/pools") // the cookie is for the dashboard
	require.Len(t, b.cookies(), 1)
	cookie := b.cookies()[0].Name + "=" + b.cookies()[0].Value // even if a browser sent it elsewhere
	newBrowser(t, b.base).get(http.StatusUnauthorized, "/v1/pools", "Cookie", cookie)

	const restart = "/ui/pools/p/do/restart-all"
	form = url.Values{"form_token": {formToken(b.get(http.StatusOK, restart))}}
	b.post(http.StatusForbidden, restart, form, "Sec-Fetch-Site", "same-site") // another program of this host
	b.post(http.StatusSeeOther, restart, form, "Sec-Fetch-Site", "same-origin")

	b.get(http.StatusUnauthorized, "/ui/", "Authorization", "Bearer "+secret+"x") // a wrong token is not a visitor
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestTheDashboardOfALoopbackGatewayActsForItsOperatorOnly(t *testing.T) {
	e := parallel(t, 0, withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" }))
	b := newBrowser(t, e.gateway.Endpoint())
	page := b.get(http.StatusOK, "/ui/")
	require.Contains(t, page, "read-only")
	require.NotContains(t, page, "/do/")
	const restart = "/ui/pools/p/do/restart-all"
	require.Contains(t, b.get(http.StatusForbidden, restart), "run tempool ui as the agent&#39;s user")
	b.get(http.StatusForbidden, "/ui/", "Host", "evil.example") // DNS rebinding

	// The Unix socket's owner gets a link that makes a browser the operator's.
	made := e.link()
	require.Contains(t, made.Rights, "admin")
	link, found := strings.CutPrefix(made.URL, b.base)
	require.True(t, found && strings.HasPrefix(link, "/ui/signin?link="), made.URL)
	b.get(http.StatusSeeOther, link)
	b.post(http.StatusSeeOther, restart, url.Values{"form_token": {formToken(b.get(http.StatusOK, restart))}})
	newBrowser(t, b.base).get(http.StatusForbidden, link) // it works once
	b.post(http.StatusNotFound, "/v1/admin/nothing", nil)
}

// link asks by the Unix socket for a link to the dashboard.
func (e *env) link() tempool.DashboardLink {
	e.t.Helper()
	return decode[tempool.DashboardLink](e.t, e.ok("POST", "/ui/links", nil).body)
}

// tempool ui opens a file, whose form crosses origins with the origin null.
func TestAFileOfCtlSignsABrowserIn(t *testing.T) {
	e := parallel(t, 0, withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" }))
	b := newBrowser(t, e.gateway.Endpoint())
	link := func() url.Values {
		return url.Values{"link": {must(url.Parse(e.link().URL)).Query().Get("link")}}
	}
	file := []string{"Sec-Fetch-Site", "cross-site", "Origin", "null"}
	first := link()
	for _, origin := range []string{"http://evil.example", "http://127.0.0.1:1", "https" +
		strings.TrimPrefix(b.base, "http")} { // another site signs nobody in, and does not use the link up
		b.post(http.StatusForbidden, ui.SignInLinkPath, first, "Sec-Fetch-Site", "cross-site", "Origin", origin)
	}
	require.Contains(t, b.get(http.StatusForbidden, "/ui/signin?"+first.Encode(), "Sec-Fetch-Site", "cross-site",
		"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"), "A page of another site led here.")
	require.Empty(t, b.cookies())
	require.Contains(t, b.post(http.StatusOK, ui.SignInLinkPath, first, file...),
		`<meta http-equiv="refresh" content="0; url=/ui/">`, "no redirect, with which a browser would not send the cookie")
	require.NotContains(t, b.get(http.StatusOK, "/ui/"), "read-only")
	other := newBrowser(t, b.base)
	require.Contains(t, other.post(http.StatusForbidden, ui.SignInLinkPath, first, file...), "was used before")
	other.post(http.StatusOK, ui.SignInLinkPath, link(), "Sec-Fetch-Site", "same-origin", "Origin", b.base)
	newBrowser(t, b.base).get(http.StatusNotFound, ui.SignInLinkPath)
	b.post(http.StatusForbidden, "/ui/signout", first, file...) // every other form is for the dashboard's own pages
}
