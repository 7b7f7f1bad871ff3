package gateway

import (
	"context"
	"io"
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
)

// emptyFleet has one pool, p, without workers. Its other methods are not reached.
type emptyFleet struct{ ui.Fleet }

type emptyPool struct{ ui.Pool }

func (emptyFleet) Hosts(context.Context) ([]tempool.Host, error) { return nil, nil }
func (emptyFleet) ListPools(context.Context) ([]string, error)   { return []string{"p"}, nil }
func (emptyFleet) Pool(string) ui.Pool                           { return emptyPool{} }

func (emptyPool) Status(context.Context) (api.PoolStatus, error) {
	return api.PoolStatus{Pool: "p"}, nil
}
func (emptyPool) Restart(context.Context, api.RestartRequest) (r api.RestartResult, err error) {
	return r, err
}
func (emptyFleet) Events(ctx context.Context, _ tempool.EventOptions) iter.Seq2[api.Event, error] {
	return func(func(api.Event, error) bool) { <-ctx.Done() }
}

// browser sends requests as a browser does, with its cookies and without following redirects.
func browser(t *testing.T) *http.Client {
	client := clientWith(t, nil)
	var err error
	client.Jar, err = cookiejar.New(nil)
	require.NoError(t, err)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client
}

func send(t *testing.T, client *http.Client, method, target string, form url.Values, headers ...string) (int, string) {
	t.Helper()
	if method == http.MethodPost {
		headers = append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)
	}
	a := ask(t, client, requestOf(t.Context(), t, method, target, strings.NewReader(form.Encode()), headers...))
	return a.status, string(a.body)
}

func formToken(page string) string {
	_, after, _ := strings.Cut(page, `name="form_token" value="`)
	token, _, _ := strings.Cut(after, `"`)
	return token
}

func TestTheDashboardSignsInWithATokenForItselfOnly(t *testing.T) {
	dir := t.TempDir()
	tokens, secret := tokensFile(t, dir, []string{"*"}, "read", "admin")
	e := parallel(t, 0, withConfig(func(c *Config) {
		c.Listen, c.Fleet = "127.0.0.1:0", emptyFleet{}
		c.Security = Security{TokensFile: tokens}
	}))
	base, client := e.gateway.Endpoint(), browser(t)
	status, _ := send(t, client, "GET", base+"/ui/", nil)
	require.Equal(t, http.StatusSeeOther, status)
	status, page := send(t, client, "GET", base+"/ui/signin", nil)
	require.Equal(t, http.StatusOK, status)
	form := url.Values{"token": {secret}, "form_token": {formToken(page)}}
	status, _ = send(t, client, "POST", base+"/ui/signin", form, "Sec-Fetch-Site", "cross-site", "Origin",
		"http://evil.example")
	require.Equal(t, http.StatusForbidden, status, "another site signs nobody in")
	status, _ = send(t, client, "POST", base+"/ui/signin", form)
	require.Equal(t, http.StatusSeeOther, status)
	status, _ = send(t, client, "GET", base+"/ui/pools/p", nil)
	require.Equal(t, http.StatusOK, status)

	status, _ = send(t, client, "GET", base+"/v1/pools", nil)
	require.Equal(t, http.StatusUnauthorized, status, "the cookie is for the dashboard")
	cookies := client.Jar.Cookies(must(url.Parse(base + "/ui/")))
	require.Len(t, cookies, 1)
	status, _ = send(t, clientWith(t, nil), "GET", base+"/v1/pools", nil, "Cookie", cookies[0].Name+"="+cookies[0].Value)
	require.Equal(t, http.StatusUnauthorized, status, "even if a browser sent it elsewhere")

	_, page = send(t, client, "GET", base+"/ui/pools/p/do/restart-all", nil)
	form = url.Values{"form_token": {formToken(page)}}
	status, _ = send(t, client, "POST", base+"/ui/pools/p/do/restart-all", form, "Sec-Fetch-Site", "same-site")
	require.Equal(t, http.StatusForbidden, status, "another program of this host")
	status, _ = send(t, client, "POST", base+"/ui/pools/p/do/restart-all", form, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusSeeOther, status)

	status, _ = send(t, client, "GET", base+"/ui/", nil, "Authorization", "Bearer "+secret+"x")
	require.Equal(t, http.StatusUnauthorized, status, "a wrong token is not a visitor")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestTheDashboardOfALoopbackGatewayActsForItsOperatorOnly(t *testing.T) {
	e := parallel(t, 0, withConfig(func(c *Config) { c.Listen, c.Fleet = "127.0.0.1:0", emptyFleet{} }))
	base, client := e.gateway.Endpoint(), browser(t)
	status, page := send(t, client, "GET", base+"/ui/", nil)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "read-only")
	require.NotContains(t, page, "/do/")
	status, page = send(t, client, "GET", base+"/ui/pools/p/do/restart-all", nil)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, page, "run tempool ui as the agent&#39;s user")
	status, _ = send(t, client, "GET", base+"/ui/", nil, "Host", "evil.example")
	require.Equal(t, http.StatusForbidden, status, "DNS rebinding")

	// The Unix socket's owner gets a link that makes a browser the operator's.
	got := e.do("POST", "/ui/links", nil)
	require.Equal(t, http.StatusOK, got.status)
	link := decode[tempool.DashboardLink](t, got.body)
	require.Contains(t, link.Rights, "admin")
	require.True(t, strings.HasPrefix(link.URL, base+"/ui/signin?link="), link.URL)
	status, _ = send(t, client, "GET", link.URL, nil)
	require.Equal(t, http.StatusSeeOther, status)
	status, page = send(t, client, "GET", base+"/ui/pools/p/do/restart-all", nil)
	require.Equal(t, http.StatusOK, status)
	status, _ = send(t, client, "POST", base+"/ui/pools/p/do/restart-all", url.Values{"form_token": {formToken(page)}})
	require.Equal(t, http.StatusSeeOther, status)
	status, _ = send(t, browser(t), "GET", link.URL, nil)
	require.Equal(t, http.StatusForbidden, status, "a link works once")
	status, _ = send(t, client, "POST", base+"/v1/admin/nothing", nil)
	require.Equal(t, http.StatusNotFound, status)
}

// tempool ui opens a file, whose form crosses origins with the origin null.
func TestAFileOfCtlSignsABrowserIn(t *testing.T) {
	e := parallel(t, 0, withConfig(func(c *Config) { c.Listen, c.Fleet = "127.0.0.1:0", emptyFleet{} }))
	base, client := e.gateway.Endpoint(), browser(t)
	link := func() string {
		got := e.do("POST", "/ui/links", nil)
		require.Equal(t, http.StatusOK, got.status)
		link := decode[tempool.DashboardLink](t, got.body)
		return must(url.Parse(link.URL)).Query().Get("link")
	}
	first := url.Values{"link": {link()}}
	target := base + ui.SignInLinkPath
	for _, origin := range []string{"http://evil.example", "http://127.0.0.1:1", "https" +
		strings.TrimPrefix(base, "http")} {
		status, _ := send(t, client, "POST", target, first, "Sec-Fetch-Site", "cross-site", "Origin", origin)
		require.Equal(t, http.StatusForbidden, status, "another site signs nobody in: %s", origin)
	}
	require.Empty(t, client.Jar.Cookies(must(url.Parse(base+"/ui/"))))
	status, page := send(t, client, "POST", target, first, "Sec-Fetch-Site", "cross-site", "Origin", "null")
	require.Equal(t, http.StatusOK, status, "and did not use the link up: %s", page)
	require.Contains(t, page, `<meta http-equiv="refresh" content="0; url=/ui/">`,
		"no redirect, with which a browser would not send the cookie")
	status, page = send(t, client, "GET", base+"/ui/", nil)
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, page, "read-only")
	status, page = send(t, browser(t), "POST", target, first, "Sec-Fetch-Site", "cross-site", "Origin", "null")
	require.Equal(t, http.StatusForbidden, status, "a link works once")
	require.Contains(t, page, "was used before")
	status, _ = send(t, browser(t), "POST", target, url.Values{"link": {link()}}, "Sec-Fetch-Site", "same-origin",
		"Origin", base)
	require.Equal(t, http.StatusOK, status)
	status, _ = send(t, browser(t), "GET", target, nil)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = send(t, client, "POST", base+"/ui/signout", first, "Sec-Fetch-Site", "cross-site", "Origin", "null")
	require.Equal(t, http.StatusForbidden, status, "every other form is for the dashboard's own pages")
}

func TestAStreamOfTheDashboardEndsWithTheGateway(t *testing.T) {
	e := parallel(t, 0, withConfig(func(c *Config) { c.Listen, c.Fleet = "127.0.0.1:0", emptyFleet{} }))
	answer, err := clientWith(t, nil).Get(e.gateway.Endpoint() + "/ui/live")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, e.gateway.Close(ctx))
	_, _ = io.ReadAll(answer.Body) // ends, whatever the error
}
