package ui

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/statuses"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/lifecycle"
)

// actTimeout bounds an action.
const actTimeout = 15 * time.Second

// page is what every template gets.
type page struct {
	Title   string
	Nav     string   // the part of the dashboard: fleet, events or sessions
	Trouble []string // what the page could not find out
	Live    string   // the query of the stream of events that the page follows; "" for none
	Data    any

	// Set by render.
	Host, Namespace string
	Visitor         string // who looks; "" for nobody
	SignedIn        bool
	Operator        bool // the visitor may act
	FormToken       string
	Nonce           string // of the page's script
	Outage          time.Duration
	Notice          string
	At              time.Time
	MaySessions     bool
}

func (v *visit) render(status int, name string, p page) error {
	d := v.d
	p.Host, p.Namespace, p.FormToken, p.At = d.config.HostID, d.config.Namespace, d.formToken(v.r), time.Now().UTC()
	p.Nonce = visitorIn(v.r).nonce
	p.Outage = d.config.Outage()
	if v.principal.Has(access.Read) {
		p.Visitor = v.principal.Name
	}
	p.SignedIn = d.Principal(v.r) != nil
	p.Operator, p.MaySessions = v.principal.Has(access.Admin), v.principal.Has(access.Sessions)
	p.Notice = noticeOf(v.r)
	var text bytes.Buffer
	if err := d.pages[name].ExecuteTemplate(&text, "layout", p); err != nil {
		d.config.Logger.Error("a page of the dashboard cannot be rendered", "page", name, "error", err)
		http.Error(v.w, "the page cannot be rendered; see the agent's log for the reason", http.StatusInternalServerError)
		return nil
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(text.Bytes()) // fails only if the browser is gone
	return nil
}

type errorView struct{ Code, Text, Advice string }

// fail answers with a page about an error.
func (v *visit) fail(err error) {
	if errors.Is(err, errSignIn) {
		http.Redirect(v.w, v.r, "/ui/signin", http.StatusSeeOther)
		return
	}
	view := errorView{cmp.Or(string(api.CodeOf(err)), "internal"), message(err), adviceOn(err)}
	_ = v.render(statusOf(err), "error", page{Title: "The request failed", Nav: "fleet", Data: view})
}

// adviceOn says what to do about an error that does not say it.
func adviceOn(err error) string {
	switch code := api.CodeOf(err); {
	case code == api.CodeUnavailable, code == api.CodeDeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return "Check that Temporal answers and that an agent runs: tempool doctor finds out. Load the page again in a " +
			"moment."
	case code == api.CodePoolNotFound:
		return "The pool may have been stopped. The fleet page lists those that run."
	case code == api.CodeWorkerNotFound:
		return "The pool may have shrunk. Its page lists its workers."
	}
	return ""
}

// statusOf is the status of a page about an error; 503 without a known code.
func statusOf(err error) int {
	return cmp.Or(statuses.Of[api.CodeOf(err)], http.StatusServiceUnavailable)
}

func (d *Dashboard) parsePages() map[string]*template.Template {
	functions := template.FuncMap{
		"bytes": format.Bytes, "traffic": format.Count, "duration": format.Duration, "oneline": format.OneLine,
		"ms":       func(n int64) string { return format.Duration(time.Duration(n) * time.Millisecond) },
		"tone":     toneOfState,
		"glyph":    func(tone string) string { return cmp.Or(glyphs[tone], "■") },
		"clock":    func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"day":      func(t time.Time) string { return t.UTC().Format("2006-01-02") },
		"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"asset":    func(name string) string { return "/ui/static/" + name + "?v=" + d.versions[name] },
		"poolpath": poolPath, "workerpath": workerPath, "escape": url.PathEscape,
		"section": func(link string) string { _, name, _ := strings.Cut(link, "#"); return name },
		"percent": func(part, whole int) int { return min(100, part*100/max(1, whole)) },
	}
	pages := map[string]*template.Template{}
	for _, name := range []string{"fleet", "pool", "worker", "events", "sessions", "session", "confirm", "signin",
		"error"} {
		pages[name] = template.Must(template.New(name).Funcs(functions).ParseFS(files, "templates/layout.html",
			"templates/parts.html", "templates/"+name+".html"))
	}
	return pages
}

// tones are those of states; that of all others is idle. Pages show the state itself, too.
var tones = map[lifecycle.State]string{
	lifecycle.Ready: "ok", lifecycle.Busy: "busy",
	lifecycle.Starting: "wait", lifecycle.Pending: "wait", lifecycle.Created: "wait",
	lifecycle.Degraded: "warn", lifecycle.Suspended: "warn", lifecycle.Draining: "warn", lifecycle.Stopping: "warn",
	lifecycle.Failed: "bad", lifecycle.Killed: "bad",
}

func toneOfState(s lifecycle.State) string { return cmp.Or(tones[s], "idle") }

// glyphs are the shapes of tones, for those who do not see their colours; that of all others is ■.
var glyphs = map[string]string{"ok": "●", "busy": "◆", "wait": "◌", "warn": "▲", "bad": "✕"}

// pageSize is how many rows a page has.
const pageSize = 100

// pager leads through the pages of a list.
type pager struct {
	Total, From, To int // rows; From counts from 1
	Page, Pages     int // Page counts from 1
	Previous, Next  string
	start           int
}

// newPager is the pager of the page that a URL asks for.
func newPager(u *url.URL, total int) pager {
	p := pager{Total: total, Pages: max(1, (total+pageSize-1)/pageSize)}
	asked, _ := strconv.Atoi(u.Query().Get("page")) // anything else is the first
	p.Page = min(max(asked, 1), p.Pages)
	p.start = (p.Page - 1) * pageSize
	p.From, p.To = min(p.start+1, total), min(p.start+pageSize, total)
	if p.Page > 1 {
		p.Previous = withPage(u, p.Page-1)
	}
	if p.Page < p.Pages {
		p.Next = withPage(u, p.Page+1)
	}
	return p
}

func withPage(u *url.URL, page int) string {
	query := u.Query()
	query.Set("page", strconv.Itoa(page))
	return u.Path + "?" + query.Encode()
}

// paged are the rows of a pager's page.
func paged[T any](rows []T, p pager) []T { return rows[p.start:p.To] }
