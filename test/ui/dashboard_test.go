package ui_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/access/accesstest"
	"github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// axeSource is the source of axe-core, as npm installs it.
func axeSource(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examplesetup.Copy(t, filepath.Join("testdata", "axe")), "node_modules",
		"axe-core", "axe.min.js"))
	require.NoError(t, err)
	return string(text)
}

// TestACrashIsFollowedToItsCauseByKeyboard walks from the problem to the last words of the process and restarts the
// worker, on the page of an agent that does not have the worker.
func TestACrashIsFollowedToItsCauseByKeyboard(t *testing.T) {
	axe := axeSource(t)
	f := newFleet(t)
	f.startAgent("alpha", "--capacity", "2")
	f.startAgent("beta", "--capacity", "4", "--labels", "other")
	pool := f.startPool("model", 2, func(s *spec.Spec) {
		s.Recovery.Restart = spec.RestartNever
		s.Queue = spec.Default().Queue // so that its text has no [queue], which the test adds
	})
	b := newBrowser(t)
	b.open(f.signInLink("beta"))
	b.await("the fleet is shown", `document.querySelector("h1").textContent === "Fleet" && `+
		`document.querySelector("#pool-model")`)
	b.await("the stream is open", `document.getElementById("link").textContent === "live"`)
	b.await("the pools are well", `document.body.innerText.includes("All pools are healthy.")`)
	b.await("the whole fleet is shown, whichever agent serves it",
		`document.querySelectorAll("#hosts tbody tr").length === 2`)
	b.accessible(axe)
	b.shot("fleet-well")

	// A worker dies for good and another one is stopped by tempool. The page shows both without a reload.
	_, err := pool.Worker(1).CallRaw(t.Context(), "die", nil)
	require.Error(t, err)
	require.NoError(t, pool.Signal(t.Context(), 0, api.SignalStop,
		api.Control{Reason: "it returns wrong results", By: "ada"}))
	b.await("the problems are shown, live",
		`["model/0", "model/1"].every(worker => document.querySelector("#problems .problem")?.innerText.includes(worker))`)
	b.accessible(axe)
	b.shots("fleet-problem")

	b.press(kb.Tab) // the first Tab of a page reaches the way past its head
	require.Equal(t, "Skip to the content", evaluate[string](b, `document.activeElement.innerText`))
	b.press(kb.Enter)
	b.follow("model/1") // from the problem to the worker, its timeline and its last words
	b.await("the timeline and the last words are shown",
		`document.querySelector("#ended")?.innerText.includes("the model file is corrupt") && `+
			`document.querySelector("#timeline").innerText.includes("failed")`)
	b.await("the log has the same words",
		`document.querySelector("#logs").innerText.includes("the model file is corrupt")`)
	b.accessible(axe)
	b.await("the page says that the process has ended", `document.getElementById("samples").textContent.includes("It has no process.") &&
		document.getElementById("now").textContent.includes("(ended)")`)
	b.shots("crash-worker")
	b.shotOf("#ended", "crash-last-words")
	b.shotOf("#timeline", "crash-timeline")
	b.shotOf("#logs", "crash-log")
	b.follow("Restart…")
	b.follow("Restart")
	b.await("the worker is back", `document.querySelector("h1").innerText.includes("ready")`)
	b.await("its host is shown, live", `document.querySelector("#now").innerText.includes("alpha")`)
	b.await("its samples are plotted", `document.querySelectorAll("#plots figure svg").length === 4`)
	b.accessible(axe)
	b.shots("worker")
	b.follow("model")
	b.await("the roster is shown", `document.querySelectorAll("#roster tbody tr").length === 2`)
	b.await("its samples are plotted", `document.querySelectorAll("#w-1 svg.spark").length === 2`)
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "ada"}) // the only worker in service
	require.NoError(t, err)
	_, err = lease.CallRaw(t.Context(), "echo", []byte(`{"text": "x"}`)) // which closes the worker to others
	require.NoError(t, err)
	const waiting = 3
	results := make(chan error, waiting)
	for range waiting {
		go func() {
			_, err := pool.CallRaw(t.Context(), "echo", []byte(`{"text": "x"}`))
			results <- err
		}()
	}
	b.await("its queue grows, live",
		`[...document.querySelectorAll(".figures div")].some((d) => d.querySelector("dt").textContent === `+
			`"waiting for a worker" && d.querySelector("dd").textContent === "3")`)
	b.accessible(axe)
	b.shots("pool")
	b.shotOf(".figures", "pool-figures")
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	for range waiting {
		require.NoError(t, <-results)
	}
	b.search("model/1")
	b.await("the roster is filtered", `document.querySelectorAll("#roster tbody tr").length === 1`)
	b.follow("model/1")

	b.follow("Suspend…")
	b.accessible(axe)
	b.shot("confirm")
	b.tabTo("reason")
	b.press("to look at it")
	b.follow("Suspend")
	require.Contains(t, evaluate[string](b, `document.body.innerText`), "The worker was asked to suspend.")
	b.await("the page shows it, live", `document.querySelector("h1").innerText.includes("suspended")`)
	state, err := pool.State(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, lifecycle.Suspended, state.State)
	require.Contains(t, state.Reason, "to look at it")
	b.follow("Resume…")
	b.follow("Resume")
	b.await("the worker is back", `document.querySelector("h1").innerText.includes("ready")`)
	b.follow("model")
	b.follow("Scale…")
	b.tabTo("size")
	evaluate[bool](b, `document.activeElement.select() || true`)
	b.press("1")
	b.follow("Scale")
	b.await("the pool has shrunk", `document.querySelectorAll("#roster tbody tr").length === 1`)
	b.follow("Restart…")
	b.follow("Restart")
	b.await("the stopped worker is ready again", `document.querySelector("#roster tbody tr").innerText.includes("ready")`)
}

func TestEventsAppearAsTheyHappen(t *testing.T) {
	axe := axeSource(t)
	f := newFleet(t)
	f.startAgent("alpha")
	beta := f.startAgent("beta", "--labels", "other")
	pool := f.startPool("model", 1)
	b := newBrowser(t)
	b.open(beta + "/ui/events") // who is not signed in may look on loopback
	b.await("the stream is open", `document.getElementById("link").textContent === "live"`)
	require.Contains(t, evaluate[string](b, `document.body.innerText`), "read-only")
	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "ada"})
	require.NoError(t, err)
	b.await("the lease is shown", `[...document.querySelectorAll("#feed tr.new")].some(r => `+
		`r.innerText.includes("lease.granted") && r.innerText.includes("ada"))`)
	b.search("lease.*")
	b.await("the filter applies", `location.search.includes("lease") && document.readyState === "complete" && `+
		`document.getElementById("link").textContent === "live"`)
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	b.await("the release is shown",
		`[...document.querySelectorAll("#feed tr.new")].some(r => r.innerText.includes("lease.released"))`)
	require.NotContains(t, evaluate[string](b, `document.querySelector("#feed").innerText`), "transitioned")
	b.accessible(axe)
	b.shot("events")

	answer, err := pool.CallRaw(t.Context(), "echo", []byte(`{"text": "x"}`))
	require.NoError(t, err)
	require.Contains(t, string(answer), "x")
	_, err = pool.Session("user:42").Create(t.Context(), tempool.SessionState{})
	require.NoError(t, err)
	b.open(beta + "/ui/sessions?pool=model")
	b.await("the session is listed", `document.body.innerText.includes("user:42")`)
	b.accessible(axe)
	b.shot("sessions")
	b.follow("user:42")
	require.Contains(t, evaluate[string](b, `document.querySelector("pre").innerText`), `"version": 1`)
	require.Zero(t, evaluate[int](b, `document.querySelectorAll(".actions a").length`),
		"who may only look is offered nothing")

	b.open(f.signInLink("beta"))
	b.open(beta + "/ui/pools/model/sessions/user:42")
	b.accessible(axe)
	b.shot("session")
	b.follow("Migrate…")
	b.accessible(axe)
	b.tabTo("to")
	b.press("0")
	b.follow("Migrate")
	require.Contains(t, evaluate[string](b, `document.querySelector("#notices").innerText`), "The move has begun")
	b.follow("Delete…")
	b.follow("Delete")
	require.Contains(t, evaluate[string](b, `document.querySelector("#notices").innerText`), "The session was deleted.")
	_, err = pool.Session("user:42").Get(t.Context())
	require.ErrorIs(t, err, api.ErrSessionNotFound)
}

func TestTheSignInAsksForAToken(t *testing.T) {
	axe := axeSource(t)
	f := newFleet(t)
	tokens := filepath.Join(f.dir, "tokens.toml")
	secret := accesstest.AddToken(t, tokens, "ops", []string{"*"}, access.All.Names()...)
	endpoint := f.startAgent("alpha", "--tokens", tokens)
	b := newBrowser(t)
	b.open(endpoint + "/ui/pools/none")
	b.await("the sign-in is shown", `location.pathname === "/ui/signin"`)
	b.accessible(axe)
	b.shot("signin")
	const focused = `document.activeElement.name === "token"` // a page that is shown may not have moved its focus yet
	b.await("the token can be typed", focused)
	b.press("wrong", kb.Enter)
	b.await("the mistake is shown",
		`document.querySelector("[role=alert]")?.innerText.includes("does not know the token")`)
	b.forgive() // the console reports the status 403
	b.await("the next token can be typed", focused)
	b.press(secret, kb.Enter)
	b.await("the fleet is shown", `document.querySelector("h1").textContent === "Fleet"`)
	b.await("the stream is open", `document.getElementById("link").textContent === "live"`)
	require.NotContains(t, evaluate[string](b, `document.cookie`), "tempool", "no script reads the cookie")
	b.follow("Sign out")
	require.True(t, strings.HasSuffix(evaluate[string](b, `location.pathname`), "/ui/signin"))
}
