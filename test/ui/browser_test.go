package ui_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
)

// browser is a tab of a headless Chromium. What its console reports is an error of the test: violations of the CSP and
// exceptions.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	reported []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	need.Program(t, "chromium")
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Headless, chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.WindowSize(1400, 900), chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(timeout))
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(allocated)
	t.Cleanup(cancelTab)
	b := &browser{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError || strings.Contains(e.Entry.Text, "Content Security Policy") {
				b.report(e.Entry.Text + " " + e.Entry.URL)
			}
		case *runtime.EventExceptionThrown:
			b.report(fmt.Sprint(e.ExceptionDetails))
		}
	}))
	// Every page counts its long tasks and the violations of its policy from its first moment.
	_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			window.longTasks = [];
			new PerformanceObserver(list => list.getEntries().forEach(e => longTasks.push(e.duration)))
			.observe({type: "longtask", buffered: true});
			window.violations = [];
			document.addEventListener("securitypolicyviolation", e =>
			violations.push(e.violatedDirective + " " + e.blockedURI));`})
	require.NoError(t, err)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.reported, "the console reports nothing")
	})
	return b
}

func (b *browser) report(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reported = append(b.reported, text)
}

// forgive drops what the console has reported, after a step that must report something.
func (b *browser) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reported = nil
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.run(chromedp.Navigate(url))
	b.sound()
}

// sound fails if the page has violated its policy.
func (b *browser) sound() {
	b.t.Helper()
	require.Empty(b.t, evaluate[[]string](b, `window.violations`), "the Content Security Policy is kept")
}

// evaluate is the value of an expression of JavaScript.
func evaluate[T any](b *browser, expression string) (value T) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression[:min(200, len(expression))])
	return value
}

// await waits until an expression of JavaScript is true.
func (b *browser) await(what, expression string) {
	b.t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		ctx, cancel := context.WithTimeout(b.ctx, timeout)
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`Boolean(`+expression+`)`))
		cancel()
		if err == nil && holds {
			return
		}
		if time.Now().After(deadline) {
			b.shot("failed")
			require.Fail(b.t, "timed out waiting until "+what, "error: %v, page: %s", err,
				evaluate[string](b, `document.body.innerText.slice(0, 3000)`))
		}
		select {
		case <-b.t.Context().Done():
			require.Fail(b.t, "the test is over")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// press sends keys to the page, as a keyboard does.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.run(chromedp.KeyEvent(key))
	}
}

// tabTo presses Tab until the focus is on a link or a button with a text, and fails if it never is or nothing shows the
// focus.
func (b *browser) tabTo(text string) {
	b.t.Helper()
	var seen []string
	for range 2 * 100 { // a page of a large pool has a link in each row
		b.press(kb.Tab)
		at := evaluate[string](
			b, `(at => at.tagName === "TEXTAREA" ? at.name : `+
				`(at.innerText || at.name || at.tagName).trim())(document.activeElement)`)
		if at == text {
			require.NotEqual(b.t, "none", evaluate[string](b, `getComputedStyle(document.activeElement).outlineStyle`),
				"the focus on %q is visible", text)
			return
		}
		seen = append(seen, at)
	}
	require.Fail(b.t, "the keyboard does not reach "+text, "it reaches %q", seen)
}

// follow goes to a link or button by the keyboard, presses Enter and waits for the next page.
func (b *browser) follow(text string) {
	b.t.Helper()
	b.tabTo(text)
	evaluate[bool](b, `window.old = true`)
	b.press(kb.Enter)
	b.await("the next page after "+text, `!window.old && document.readyState === "complete"`)
	b.sound()
}

// search goes to the search of the page by its key, and searches.
func (b *browser) search(text string) {
	b.t.Helper()
	b.press("/")
	require.Equal(b.t, "/", evaluate[string](b, `document.activeElement.dataset.focus`))
	evaluate[bool](b, `document.activeElement.select() || true`) // DevTools also types the key, which a keyboard would not
	b.press(text, kb.Enter)
}

// shot keeps a picture of the page in the folder SCREENSHOTS, if it is set.
func (b *browser) shot(name string) {
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o600))
}

// shots keeps a picture of the page as it is, and one in the dark.
func (b *browser) shots(name string) {
	b.shot(name)
	b.dark(true)
	b.shot(name + "-dark")
	b.dark(false)
}

// shotOf keeps a picture of the page, scrolled to an element.
func (b *browser) shotOf(element, name string) {
	b.t.Helper()
	evaluate[bool](b, `(document.querySelector("`+element+`").scrollIntoView({block: "center"}), true)`)
	b.shots(name)
}

// wide makes the window so many pixels wide.
func (b *browser) wide(pixels int64) {
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: pixels, Height: 900, DeviceScaleFactor: 1})
	require.NoError(b.t, err)
}

// fits fails if the page, or a table on it, is wider than the windows of a laptop or of a phone.
func (b *browser) fits() {
	b.t.Helper()
	for _, width := range []int64{390, 1280} {
		b.wide(width)
		require.Empty(b.t, evaluate[[]string](b, `[document.documentElement, ...document.querySelectorAll(".scroll")]`+
			`.filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel + " " + e.scrollWidth + " of " + e.clientWidth)`),
			"%d pixels", width)
	}
}

// dark makes the page dark or light.
func (b *browser) dark(dark bool) {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(b.t, err)
}

// accessible fails if axe finds a serious violation on the page, in light or dark.
func (b *browser) accessible(axe string) {
	b.t.Helper()
	for _, dark := range []bool{false, true} {
		b.dark(dark)
		evaluate[int](b, axe+`; 0`) // by the debugger, which the policy does not bind
		found := evaluate[string](
			b, `axe.run().then(r => JSON.stringify(r.violations.map(v => ({id: v.id, impact: v.impact, help: v.help, nodes: `+
				`v.nodes.map(n => n.html + " " + n.failureSummary).slice(0, 5)}))))`)
		var violations []struct {
			ID, Impact, Help string
			Nodes            []string
		}
		require.NoError(b.t, json.Unmarshal([]byte(found), &violations))
		for _, v := range violations {
			text := fmt.Sprintf("%s (%s): %s\n%s", v.ID, v.Impact, v.Help, strings.Join(v.Nodes, "\n"))
			require.NotContains(b.t, []string{"serious", "critical"}, v.Impact, "dark: %v, %s", dark, text)
			b.t.Log(text)
		}
	}
	b.dark(false)
}
