package ui

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// textIn is what the form of a page has as the text of a spec.
func textIn(page string) string {
	_, after, _ := strings.Cut(page, "<textarea")
	_, after, _ = strings.Cut(after, ">\n")
	text, _, _ := strings.Cut(after, "</textarea>")
	return html.UnescapeString(text)
}

func baseIn(page string) string {
	_, after, _ := strings.Cut(page, `name="base" value="`)
	base, _, _ := strings.Cut(after, `"`)
	return base
}

const applyPy = "/ui/pools/py/apply"

func TestASpecIsEditedComparedAndApplied(t *testing.T) {
	s := newSite(t, operator, nil)
	_, pool, _ := s.get("/ui/pools/py")
	require.Contains(t, pool, `href="/ui/pools/py/apply"`)
	require.NotContains(t, pool, "s3cret", "the page of the pool shows no secret")
	require.Contains(t, html.UnescapeString(pool), `env = { KEY = "(hidden)" }`)

	_, page, _ := s.get(applyPy)
	present := textIn(page)
	require.Contains(t, present, `command = ["python3", "worker.py"]`)
	require.Contains(t, present, `KEY = "s3cret"`, "an operator must be able to keep it")
	token := tokenIn(page)
	send := func(step, text, base string) (int, string, http.Header) {
		t.Helper()
		return s.post(applyPy, url.Values{"form_token": {token}, "step": {step}, "spec": {text}, "base": {base}, "reason": {" a new program "}})
	}
	status, same, _ := send(stepCompare, present, "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, same, "There is nothing to apply.")
	require.NotContains(t, same, `value="apply"`)

	larger := strings.Replace(present, "size = 3", "size = 5", 1)
	_, compared, _ := send(stepCompare, larger, "")
	require.Contains(t, compared, "<code>pool.size</code>")
	require.Contains(t, compared, "<del>3</del>")
	require.Contains(t, compared, "<ins>5</ins>")
	require.Contains(t, compared, "No worker restarts")
	require.Empty(t, s.fleet.done, "comparing applies nothing")

	other := strings.ReplaceAll(larger, "worker.py", "<new>.py") + "# a comment\n"
	_, compared, _ = send(stepCompare, strings.ReplaceAll(other, "\n", "\r\n"), "")
	require.Contains(t, compared, "3 workers to restart, at most 1 at a time.")
	require.Equal(t, other, textIn(compared), "the text is carried along")
	_, edited, _ := send(stepEdit, textIn(compared), baseIn(compared))
	require.Equal(t, other, textIn(edited), "and comes back to be edited")

	changed := s.fleet.pools["py"]
	changed.Spec.Queue.Size = 7
	s.fleet.set(func(f *fakeFleet) { f.pools["py"] = changed })
	status, text, _ := send(stepApply, other, baseIn(compared))
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, text, "the pool&#39;s spec has changed since you compared")
	require.Contains(t, text, "<code>queue.size</code>", "which the text would change back")
	require.Empty(t, s.fleet.done)

	s.fleet.set(func(f *fakeFleet) { f.failure = nil })
	status, _, header := send(stepApply, other, baseIn(text))
	require.Equal(t, http.StatusSeeOther, status)
	require.Equal(t, []string{"apply py"}, s.fleet.done)
	require.Equal(t, []string{"python3", "<new>.py"}, s.fleet.applied.Spec.Pool.Command)
	require.Equal(t, 5, s.fleet.applied.Spec.Pool.Size)
	s.fleet.applied.Spec = spec.Spec{}
	require.Equal(t, api.ApplyRequest{IfVersion: 1, Reason: "a new program", By: "ops in the dashboard"}, s.fleet.applied)
	_, text, _ = s.get(header.Get("Location"))
	require.Contains(t, text, "The pool has recorded the spec.")
}

// Between the comparison and the moment when the pool takes the spec, somebody else may apply one.
func TestASpecIsAppliedToTheComparedVersionOnly(t *testing.T) {
	s := newSite(t, operator, nil)
	_, page, _ := s.get(applyPy)
	form := url.Values{"form_token": {tokenIn(page)}, "step": {stepApply}, "spec": {strings.Replace(textIn(page), "worker.py", "mine.py", 1)},
		"base": {fingerprint(s.fleet.pools["py"].Spec)}, "reason": {"mine"}}
	form.Set("reason", strings.Repeat("é", maxReasonRunes+1))
	status, refused, _ := s.post(applyPy, form)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, refused, "at most 500 are allowed")
	form.Set("reason", "mine")
	s.fleet.set(func(f *fakeFleet) {
		f.beforeApply = func(f *fakeFleet) {
			theirs := f.pools["py"]
			theirs.SpecVersion, theirs.Spec.Queue.Size, f.beforeApply = 2, 7, nil
			f.pools["py"] = theirs
		}
	})
	status, compared, _ := s.post(applyPy, form)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, compared, "the pool&#39;s spec has changed since you compared")
	require.Contains(t, compared, "<code>queue.size</code>", "which the text would change back")
	require.Contains(t, compared, `value="mine"`, "the reason is kept")
	require.Empty(t, s.fleet.done)
	form.Set("base", baseIn(compared))
	status, _, _ = s.post(applyPy, form)
	require.Equal(t, http.StatusSeeOther, status)
	require.EqualValues(t, 2, s.fleet.applied.IfVersion)
}

func TestAMistakeInASpecNamesLineAndKeyAndLosesNothing(t *testing.T) {
	s := newSite(t, operator, nil)
	_, page, _ := s.get(applyPy)
	token := tokenIn(page)
	for text, says := range map[string]string{
		"[pool]\nname = \"py\"\ncommand = [\"x\"]\nsize = 0\n":  "pool.toml:4: pool.size: 0 is not allowed",
		"[pool]\nname = \"py\"\ncommand = [\"x\"]\nsizes = 3\n": "pool.toml:4: pool.sizes",
		"[pool\n": "pool.toml:1: invalid TOML",
		"# <b>\n[pool]\nname = \"other\"\ncommand = [\"x\"]\n":    "pool.toml:3: pool.name: the spec is for another pool, other",
		"[pool]\nname = \"py\"\ncommand = [\"x\"]\ndir = \"./a\"": `pool.toml:4: pool.dir: "./a" is relative`,
		"": "pool.name",
		"[pool]\nname = \"py\"\ncommand = [\"x\"]\nargs = \"" + strings.Repeat("x", spec.MaxBytes) + "\"": "larger than",
	} {
		for _, step := range []string{stepCompare, stepApply} {
			status, page, _ := s.post(applyPy, url.Values{"form_token": {token}, "step": {step}, "spec": {text}})
			require.Equal(t, http.StatusBadRequest, status)
			require.Contains(t, html.UnescapeString(page), says)
			require.Contains(t, page, `aria-invalid="true" aria-describedby="mistake"`)
			require.Equal(t, text, textIn(page))
		}
	}
	require.Empty(t, s.fleet.done)

	minimal := "[pool]\nname = \"py\"\ncommand = [\"x\"]\n"
	_, page, _ = s.post(applyPy, url.Values{"form_token": {token}, "step": {stepCompare}, "spec": {minimal}})
	require.Contains(t, page, "it stays /srv/py")
	require.NotContains(t, page, "<code>pool.dir</code>")
	s.fleet.set(func(f *fakeFleet) { f.failure = api.Errorf(api.CodeUnavailable, "Temporal is down") })
	status, failed, _ := s.post(applyPy, url.Values{"form_token": {token}, "step": {stepApply}, "spec": {minimal}, "base": {baseIn(page)}})
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, failed, "Temporal is down")
	require.Equal(t, minimal, textIn(failed))
	s.fleet.set(func(f *fakeFleet) { f.failure = nil })

	large := httptest.NewRequest(http.MethodPost, applyPy, strings.NewReader(url.Values{"spec": {strings.Repeat("é", 4*spec.MaxBytes)}}.Encode()))
	large.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	s.board.Serve(answer, large, operator)
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.Code)
	require.Contains(t, answer.Body.String(), "go back and shorten its texts")
	status, _, _ = s.get("/ui/pools/none/apply")
	require.Equal(t, http.StatusNotFound, status)
}

func TestOnlyAnOperatorsFormAppliesASpec(t *testing.T) {
	s := newSite(t, operator, nil)
	_, page, _ := s.get(applyPy)
	form := url.Values{"step": {stepApply}, "spec": {strings.Replace(textIn(page), "size = 3", "size = 5", 1)}, "base": {fingerprint(s.fleet.pools["py"].Spec)}}
	for _, wrong := range []string{"", "x" + tokenIn(page)} {
		form.Set("form_token", wrong)
		status, _, _ := s.post(applyPy, form)
		require.Equal(t, http.StatusForbidden, status)
	}
	require.Empty(t, s.fleet.done)
	for _, limited := range []*access.Principal{
		{Name: "token ci", Rights: access.Client}, {Name: "token js", Rights: access.All, Pools: []string{"js"}},
		{Name: "token py", Rights: access.All, Pools: []string{"py"}}, // a spec names programs, and they run as the agent's user
	} {
		s := newSite(t, limited, nil)
		status, text, _ := s.get(applyPy)
		require.Equal(t, http.StatusForbidden, status)
		require.NotContains(t, text, "s3cret")
		_, text, _ = s.get("/ui/pools/py")
		require.NotContains(t, text, "Apply spec")
		form.Set("form_token", s.board.formToken(&http.Request{}))
		status, _, _ = s.post(applyPy, form)
		require.Equal(t, http.StatusForbidden, status)
		require.Empty(t, s.fleet.done)
	}
	form.Set("form_token", tokenIn(page))
	status, _, _ := s.post(applyPy, form)
	require.Equal(t, http.StatusSeeOther, status, "the same form, by an operator")
}

func TestAPoolShowsWhichWorkersHaveWhichSpec(t *testing.T) {
	s := newSite(t, operator, nil)
	_, text, _ := s.get("/ui/pools/py")
	require.NotContains(t, text, "Specs in use", "of one spec")
	older := s.fleet.pools["py"].Spec
	status := s.fleet.pools["py"]
	status.SpecVersion, status.Spec.Pool.Command, status.Spec.Pool.Size = 3, []string{"python3", "new.py"}, 9
	status.Spec.Pool.Env = map[string]string{"KEY": "changed"}
	status.Workers[1].SpecVersion = 3
	s.fleet.pools["py"] = status
	s.board.memos.forget("py") // it is a second later
	s.fleet.specs = map[int]api.WorkerSpec{0: {Spec: older, Version: 1}}
	_, text, _ = s.get("/ui/pools/py")
	text = html.UnescapeString(text)
	present, old, _ := strings.Cut(text, "<h3>Version 1</h3>")
	require.Contains(t, present, "Version 3, the present one")
	require.Contains(t, old, `<a class="chip" href="/ui/pools/py/workers/0">0</a> <a class="chip" href="/ui/pools/py/workers/2">2</a>`)
	require.Contains(t, old, `<del>["python3", "worker.py"]</del>`)
	require.Contains(t, old, `<ins>["python3", "new.py"]</ins>`)
	require.Contains(t, old, "<code>pool.env.KEY</code>")
	require.NotContains(t, text, "s3cret")
	require.NotContains(t, text, "<ins>9</ins>", "the size is the pool's, not the workers'")

	s.fleet.specs = nil
	_, text, _ = s.get("/ui/pools/py")
	require.Contains(t, text, "What differs is not known: its worker does not report it")
}

func TestAVersionOfASpecThatIsNotComparedIsNotCalledTheSame(t *testing.T) {
	s := newSite(t, operator, nil)
	many := api.PoolStatus{Pool: "many", Size: 6, SpecVersion: 6, Spec: s.fleet.pools["py"].Spec}
	s.fleet.specs = map[int]api.WorkerSpec{}
	for i := range 6 {
		older := many.Spec
		older.Queue.Size = 100 + i
		many.Workers = append(many.Workers, api.RosterEntry{Slot: i, State: lifecycle.Ready, Incarnation: 1, SpecVersion: int64(i + 1)})
		s.fleet.specs[i] = api.WorkerSpec{Spec: older, Version: int64(i + 1)}
	}
	s.fleet.pools["many"] = many
	_, text, _ := s.get("/ui/pools/many")
	text = html.UnescapeString(text)
	require.Contains(t, text, "<del>102</del>", "of version 3")
	_, oldest, _ := strings.Cut(text, "<h3>Version 2</h3>")
	require.NotContains(t, oldest, "It is the same as the present one")
	require.Equal(t, 2, strings.Count(oldest, "What differs is not known: only the newest 3 older versions are compared."))
}

func TestThePageOfAPoolHidesWhatItsProgramIsGiven(t *testing.T) {
	s := newSite(t, operator, nil)
	py := s.fleet.pools["py"]
	py.Spec.Pool.Command = []string{"serve", "--token", "s3cret", "redis://s3cret@db", "https://h/?key=s3cret"}
	py.Spec.Health.Path, py.Spec.Sessions.URL = "/healthz?key=s3cret", "redis://s3cret@db"
	s.fleet.pools["py"] = py
	for _, path := range []string{"/ui/", "/ui/pools/py", "/ui/pools/py/workers/0"} {
		_, text, _ := s.get(path)
		require.NotContains(t, text, "s3cret", path)
	}
	_, text, _ := s.get("/ui/pools/py")
	require.Contains(t, text, "<code>serve --token (hidden) redis://(hidden)@db https://h/?key=(hidden)</code>")
}
