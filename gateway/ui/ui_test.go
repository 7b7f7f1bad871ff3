package ui

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachPageShowsItsFacts(t *testing.T) {
	s := newSite(t, operator, nil)
	for path, says := range map[string][]string{
		"/ui/": {"Problems", "pool py", "killed by SIGSEGV &lt;b&gt;", "No agent is up on it.",
			"What to do", `#tempoolworkerresting">tempoolworkerresting</a>`, "3<small> of 4</small>",
			"<dt>waiting for a worker</dt><dd>21</dd>", `href="/ui/pools/py/workers/2"`,
			"50.0 MiB", "</span> draining</span>", `<a href="/ui/hosts/web-1/do/undrain-host">Undrain…`},
		"/ui/pools/py": {"py/2", "ada", "out of service (1)", "<dt>waiting for a worker</dt><dd>17</dd>",
			"workflow in Temporal", "http://temporal.test/namespaces/default/workflows/tempool%2Fpy", "Restart…",
			"fails in 2h2m</span>", `key</span> 0a1b2c3d <span class="muted">since `,
			"<dt>MCP sessions</dt><dd>7</dd>", `MCP</span> token &lt;ci&gt; <span class="muted">since `},
		"/ui/pools/py/workers/2": {"It stays down until a restart", "Last output",
			"&lt;script&gt;alert(1)&lt;/script&gt;", "Incarnation 4", "do/restart?worker=2"},
		"/ui/pools/py/workers/0": {"py.0.1.7", "ada", "Release lease…", "do/release?lease=py.0.1.7&amp;worker=0",
			", process 12 of it", "<dt>Key</dt><dd>0a1b2c3d ",
			"fails in 2h2m</span> Watch closely: memory grows &lt;i&gt;.",
			"<dt>Network</dt><dd>3.0 MiB received, 0 B sent</dd>"},
		"/ui/events":                   {"process.ended", "killed", "host.joined"},
		"/ui/sessions?pool=py":         {"user:1"},
		"/ui/pools/py/sessions/user:1": {"user:1", "version 2"},
	} {
		status, text, header := s.get(path)
		require.Equal(t, http.StatusOK, status, path)
		for _, want := range says {
			require.Contains(t, text, want, path)
		}
		nonce := regexp.MustCompile(`<script type="module" nonce="(\w+)" src="/ui/static/ui.js`).FindStringSubmatch(text)
		require.NotNil(t, nonce, path)
		require.Contains(t, header.Get("Content-Security-Policy"), "script-src 'nonce-"+nonce[1]+"';",
			"and no other script of this address")
		require.NotContains(t, header.Get("Content-Security-Policy"), "unsafe")
		require.NotRegexp(t, regexp.MustCompile(`<script>|\son[a-z]+=|\sstyle=|<style`), text, "%s has nothing inline", path)
	}
	s.fleet.cut = api.Errorf(api.CodeUnavailable, "the gateway at http://127.0.0.1:2 is reachable only from its own host")
	_, text, _ := s.get("/ui/pools/py/workers/2")
	require.Contains(t, text, "The log cannot be read: the gateway at http://127.0.0.1:2 is reachable only from its own "+
		"host.")
	text = s.visit(http.StatusNotFound, "/ui/pools/none")
	require.Contains(t, text, "pool none is not running")
	require.Contains(t, text, "The fleet page lists those that run")
	s.visit(http.StatusNotFound, "/ui/pools/py/workers/9")
	s.visit(http.StatusNotFound, "/ui/nonsense")
}

func TestLongLinesAndManyEventsAreCut(t *testing.T) {
	s := newSite(t, operator, nil)
	s.fleet.lines[0].Text = strings.Repeat("é", 64<<10)
	_, text, _ := s.get("/ui/pools/py/workers/2")
	require.Contains(t, text, strings.Repeat("é", shownLineBytes/2)+"…")
	require.NotContains(t, text, strings.Repeat("é", shownLineBytes/2+1))
	one := s.fleet.events[0]
	for range shownEvents {
		s.fleet.events = append(s.fleet.events, one)
	}
	_, text, _ = s.get("/ui/events?since=24h")
	require.Contains(t, text, "Earlier ones are not shown")
	require.Equal(t, shownEvents, strings.Count(text, "data-id="))
}

func TestPagesAnswerWhileTemporalDoesNot(t *testing.T) {
	s := newSite(t, operator, nil)
	s.visit(http.StatusOK, "/ui/")
	s.fleet.set(func(f *fakeFleet) { f.silent = true })
	s.board.memos.hosts.asked, s.board.memos.names.asked = time.Time{}, time.Time{}
	s.board.memos.pools.of("py").asked, s.board.memos.pools.of("js").asked = time.Time{}, time.Time{}
	var asking sync.WaitGroup
	for path, says := range map[string]string{
		"/ui/": "The hosts could not be listed: Temporal, or the workflow, did not answer in time. This " +
			"is as of",
		"/ui/pools/py":           "This is as of",
		"/ui/pools/js":           "js/0",
		"/ui/pools/none":         "tempool doctor finds out",
		"/ui/pools/py/workers/2": "last report: not within 2s",
		"/ui/events":             "Events are missing",
		"/ui/sessions?pool=py":   "The sessions cannot be read",
	} {
		asking.Go(func() {
			_, text, _ := s.get(path) // Temporal never answers: the page comes because its questions time out
			assert.Contains(t, text, says, path)
		})
	}
	asking.Wait()
}

// TestAWorkerThatDoesNotAnswerIsShownAsInTheTerminal: also in a second view, soon after.
func TestAWorkerThatDoesNotAnswerIsShownAsInTheTerminal(t *testing.T) {
	s := newSite(t, operator, nil)
	s.fleet.mute = true
	for _, path := range []string{"/ui/pools/py", "/ui/pools/py", "/ui/pools/py/workers/0"} {
		_, text, _ := s.get(path)
		require.Contains(t, text, "no answer, showing the pool&#39;s last report: not within 2s", path)
	}
}

// TestEveryPageAsksAWorkerOutOfService: its pool hears late of one that fails again and again.
func TestEveryPageAsksAWorkerOutOfService(t *testing.T) {
	s := newSite(t, operator, nil)
	s.fleet.pools["py"].Workers[1].State = lifecycle.Starting
	s.fleet.flapping = "py/1"
	s.large(400)[300].State = lifecycle.Starting
	_, text, _ := s.get("/ui/")
	require.Contains(t, text, "exited with code 3")
	s.fleet.flapping = "big/300"
	_, text, _ = s.get("/ui/pools/big")
	require.Contains(t, text, "exited with code 3", "also of one that another page of the roster shows")
}

func TestALargeRosterIsPagedAndFiltered(t *testing.T) {
	s := newSite(t, operator, nil)
	workers := s.large(1000)
	for i := range workers {
		s.fleet.samples = append(s.fleet.samples, fourSamples(api.WorkerName("big", i)))
		if i%250 == 7 {
			workers[i].State = lifecycle.Degraded
		}
	}
	rows := func(path string) []string {
		return regexp.MustCompile(`<tr id="w-\d+"`).FindAllString(s.visit(http.StatusOK, path), -1)
	}
	require.Equal(t, 200, strings.Count(s.visit(http.StatusOK, "/ui/pools/big?page=2"), `<svg class="spark"`))
	require.Len(t, s.fleet.asked[0].Workers, 100, "a page asks for its own samples only")
	require.Equal(t, 100, s.fleet.asked[0].Workers[0])
	require.Equal(t, []string{"http://10.0.0.2"}, s.fleet.asked[0].Gateways)
	require.Empty(t, rows("/ui/pools/big?q=nothing"))
	require.Len(t, s.fleet.asked, 1, "no row asks nothing")
	require.Len(t, rows("/ui/pools/big"), 100)
	require.Equal(t, `<tr id="w-900"`, rows("/ui/pools/big?page=10")[0])
	require.Len(t, rows("/ui/pools/big?page=99"), 100, "the last page")
	require.Len(t, rows("/ui/pools/big?state=out"), 4)
	require.Len(t, rows("/ui/pools/big?q=big/99"), 11)
	_, text, _ := s.get("/ui/pools/big?q=web-1")
	require.Contains(t, text, "1–100 of 500")
	require.Contains(t, text, "page=2&amp;q=web-1")
}

func TestActionsAskOnceAndNeedARightAndTheFormsToken(t *testing.T) {
	s := newSite(t, operator, nil)
	for action, want := range map[string]string{
		"hosts/web-2/do/drain-host?reason=kernel": "drain web-2: kernel (by ops in the dashboard)",
		"halt-rollout?reason=odd":                 "halt the rollout of py: odd by ops in the dashboard",
		"hosts/web-1/do/undrain-host":             "undrain web-1",
		"hosts/none/do/drain-host":                "",
		"hosts/web-1/do/stop-pool":                "",
		"drain-host":                              "",
		"scale?size=5":                            "scale py 5",
		"restart-all?reason=new+model":            "restart py -1: new model by ops in the dashboard",
		"restart?worker=2&reason=x":               "restart py 2: x by ops in the dashboard",
		"drain?worker=1":                          "drain py/1: ",
		"suspend?worker=1":                        "suspend py/1: ",
		"resume?worker=1":                         "resume py/1: ",
		"stop?worker=1":                           "stop py/1: ",
		"release?worker=0&lease=py.0.1.7":         "checkin py.0.1.7 ok ",
		"stop-pool?reason=maintenance":            "stop py: maintenance (by ops in the dashboard)",
		"migrate?session=user:1&to=2":             "migrate session py user:1 to py/2",
		"delete-session?session=user:1":           "delete session py user:1",
		"migrate?session=user:1&to=none":          "",
		"delete-session?session=":                 "",
		"scale?size=none":                         "",
		"release?worker=0&lease=py.0.1.6":         "",
		"release?worker=1&lease=py.0.1.7":         "",
		"nonsense":                                "",
		"drain":                                   "",
		"restart?reason=" + strings.Repeat("x", 501) + "&worker=0": "",
	} {
		if !strings.HasPrefix(action, "hosts/") {
			action = "pools/py/do/" + action
		}
		path, query, _ := strings.Cut("/ui/"+action, "?")
		form, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, asked, _ := s.get("/ui/" + action)
		require.Empty(t, s.fleet.done, "a page that asks does nothing")
		s.submit(http.StatusForbidden, path, form) // without the token of the form
		form.Set("form_token", "x"+s.board.formToken(&http.Request{}))
		s.submit(http.StatusForbidden, path, form) // with a wrong one
		require.Empty(t, s.fleet.done)
		if want != "" {
			form.Set("form_token", tokenIn(asked))
		} else {
			form.Set("form_token", s.board.formToken(&http.Request{}))
		}
		status, text, header := s.post(path, form)
		if want == "" {
			require.GreaterOrEqual(t, status, 400, action)
			require.Contains(t, text, `role="alert"`)
			require.Empty(t, s.fleet.done)
			continue
		}
		require.Equal(t, http.StatusSeeOther, status, action)
		slices.Sort(s.fleet.done)
		require.Equal(t, want, strings.Join(s.fleet.done, "; "))
		_, text, _ = s.get(header.Get("Location"))
		require.Contains(t, text, `class="notice ok"`)
		s.fleet.done = nil
	}

	for _, slots := range [][]int{nil, {2}} { // what the pool has stopped for memory is no operator's stop
		s := newSite(t, operator, nil)
		py := s.fleet.pools["py"]
		py.StoppedForMemory = slots
		s.fleet.pools["py"] = py
		_, text, _ := s.get("/ui/pools/py/workers/2")
		require.Equal(t, slots != nil, strings.Contains(text, "do/stop?worker=2"))
		require.NotContains(t, text, "do/suspend")
	}
	s.fleet.failure = api.Errorf(api.CodeUnavailable, "Temporal is down")
	status, text, _ := s.post("/ui/pools/py/do/drain",
		url.Values{"worker": {"1"}, "form_token": {s.board.formToken(&http.Request{})}})
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "The action failed: Temporal is down.")

	for _, limited := range []*access.Principal{
		{Name: "token ci", Rights: access.Client}, {Name: "token js", Rights: access.All, Pools: []string{"js"}},
	} {
		s := newSite(t, limited, nil)
		for _, path := range []string{"/ui/pools/py/do/drain?worker=1", "/ui/hosts/web-1/do/drain-host"} {
			s.visit(http.StatusForbidden, path)
			s.submit(http.StatusForbidden, path, url.Values{"form_token": {s.board.formToken(&http.Request{})}})
		}
		require.Empty(t, s.fleet.done)
	}
}

func TestATokenForSomePoolsSeesTheseOnly(t *testing.T) {
	s := newSite(t, &access.Principal{Name: "token js", Rights: access.All, Pools: []string{"js"}}, nil)
	for _, path := range []string{"/ui/", "/ui/events", "/ui/sessions"} {
		_, text, _ := s.get(path)
		require.NotContains(t, text, "py", path)
		require.NotContains(t, text, "web-1</th>", path)
	}
	for _, path := range []string{"/ui/pools/py", "/ui/pools/py/workers/0", "/ui/events?pool=py", "/ui/live?pool=py",
		"/ui/sessions?pool=py", "/ui/pools/py/sessions/x"} {
		s.visit(http.StatusForbidden, path)
	}
}

func TestABrowserSignsInWithATokenOrALink(t *testing.T) {
	nobody := &access.Principal{Name: "nobody"}
	known := map[string]*access.Principal{"secret": operator, "caller": {Name: "token ci", Rights: access.Call}}
	s := newSite(t, nobody, func(secret string) *access.Principal { return known[secret] })
	status, _, header := s.get("/ui/")
	require.Equal(t, http.StatusSeeOther, status)
	require.Equal(t, "/ui/signin", header.Get("Location"))
	_, page, _ := s.get("/ui/signin")
	form := url.Values{"form_token": {tokenIn(page)}}
	for wrong, says := range map[string]string{"guess": "does not know the token",
		"caller": "does not have the right read"} {
		form.Set("token", wrong)
		status, text, header := s.post("/ui/signin", form)
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, text, says)
		require.Empty(t, header.Get("Set-Cookie"))
	}
	form.Set("token", "secret")
	status, _, header = s.post("/ui/signin", form)
	require.Equal(t, http.StatusSeeOther, status)
	for _, part := range []string{"tempool_ui_", "Path=/ui", "HttpOnly", "SameSite=Strict", "Max-Age=43200"} {
		require.Contains(t, header.Get("Set-Cookie"), part)
	}
	require.NotContains(t, header.Get("Set-Cookie"), "secret", "the cookie does not hold the token")
	require.Contains(t, s.visit(http.StatusOK, "/ui/"), "ops")

	known = map[string]*access.Principal{}
	s.visit(http.StatusSeeOther, "/ui/") // the token was withdrawn
	known["secret"] = operator
	page = s.visit(http.StatusOK, "/ui/")
	s.submit(http.StatusSeeOther, "/ui/signout", url.Values{"form_token": {tokenIn(page)}})
	s.visit(http.StatusSeeOther, "/ui/")

	name, err := s.board.links.add(identity{principal: operator})
	require.NoError(t, err)
	link := "/ui/signin?link=" + name
	looks, err := http.NewRequestWithContext(t.Context(), http.MethodHead, s.server.URL+link, nil)
	require.NoError(t, err)
	status, _, header = s.do(looks)
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, header.Get("Set-Cookie"), "HEAD uses no link up")
	s.visit(http.StatusSeeOther, link)
	s.visit(http.StatusOK, "/ui/pools/py")
	require.Contains(t, s.visit(http.StatusForbidden, link), "was used before")
	s.submit(http.StatusForbidden, "/ui/links", nil) // a browser gets no further link
}

func TestAFormThatIsTooLargeSaysSo(t *testing.T) {
	s := newSite(t, operator, nil)
	form := url.Values{"form_token": {s.board.formToken(&http.Request{})}, "reason": {strings.Repeat("r", maxFormBytes)}}
	for _, path := range []string{"/ui/pools/py/do/drain", SignInLinkPath} {
		require.Contains(t, s.submit(http.StatusRequestEntityTooLarge, path, form), "more than 16.0 KiB")
	}
}

func TestSignInsAreBoundedForEachClient(t *testing.T) {
	g := newGrants(4, 2, time.Hour)
	add := func(name string) string {
		added, err := g.add(identity{principal: &access.Principal{Name: name}})
		require.NoError(t, err)
		return added
	}
	ops := add("uid 0")
	first, second, third := add("127.0.0.1"), add("127.0.0.2"), add("127.0.0.1")
	for name, want := range map[string]bool{ops: true, first: false, second: true, third: true} {
		_, found := g.get(name, false)
		require.Equal(t, want, found, "a client's oldest makes room, and nobody else's")
	}
	add("token a")
	_, err := g.add(identity{principal: &access.Principal{Name: "token b"}})
	require.ErrorIs(t, err, errFull)
	add("127.0.0.3")
	_, found := g.get(ops, false)
	require.True(t, found)

	g = newGrants(2, 2, -time.Second)
	_, found = g.get(add("uid 0"), false)
	require.False(t, found, "it has expired")
}

// stream opens the stream of a page.
func (s *site) stream(ctx context.Context, t *testing.T, query string) *http.Response {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/ui/live?"+query, nil)
	require.NoError(t, err)
	answer, err := s.client.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// live opens the stream of a page, emits events and returns the first that the stream brings.
func (s *site) live(t *testing.T, query string, events ...api.Event) string {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	answer := s.stream(ctx, t, query)
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	for _, event := range events {
		s.fleet.follow <- event
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
			return data
		}
	}
	require.Fail(t, "the stream has ended", lines.Err())
	return ""
}

func TestTheStreamBringsTheEventsOfThePage(t *testing.T) {
	s := newSite(t, operator, nil)
	ahead := time.Now().Add(time.Minute).UTC().Format(time.RFC3339Nano) // by the clock of another host
	data := s.live(t, "pool=py&worker=2&since="+ahead,
		api.Event{ID: "a-1", Source: "/pools/py/workers/1", Type: api.EventProcessEnded, Data: []byte(`{}`)},
		api.Event{ID: "a-2", Source: "/pools/py/workers/2", Type: api.EventProcessEnded,
			Data: []byte(`{"reason": "killed"}`)})
	require.Contains(t, data, `"id":"a-2"`, "and not the event of another worker")
	require.Contains(t, data, "killed")
	s.fleet.set(func(f *fakeFleet) { require.False(t, f.since.After(time.Now()), f.since) })
}

func TestALeaseThatNoHostKnowsIsShownAtItsEvent(t *testing.T) {
	s := newSite(t, operator, nil)
	_, text, _ := s.get("/ui/pools/py")
	require.NotContains(t, text, "grace")
	s.fleet.set(func(f *fakeFleet) { f.leased = "py/1" })
	s.live(t, "pool=py",
		api.Event{ID: "a-3", Source: api.WorkerSource("py/1"), Type: api.EventLeaseGranted, Data: []byte(`{}`)})
	_, text, _ = s.get("/ui/pools/py")
	require.Contains(t, text, "grace")
	require.Contains(t, text, "busy")
}

func TestStreamsAreBounded(t *testing.T) {
	s := newSite(t, operator, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxStreamsEach {
		require.Equal(t, http.StatusOK, s.stream(ctx, t, "").StatusCode)
	}
	refused := s.stream(ctx, t, "")
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	cancel()
	require.Eventually(t, func() bool { return s.board.streams.enter(stream{owner: operator.Name}) }, 2*time.Minute,
		10*time.Millisecond, "streams that end make room")

	var all streams
	for i := range maxStreams {
		require.True(t, all.enter(stream{owner: strconv.Itoa(i)}))
	}
	require.False(t, all.enter(stream{owner: "one more"}))
	all.leave(stream{owner: "0"})
	require.True(t, all.enter(stream{owner: "one more"}))
}
