package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// topAsked records what a screen asks for.
type topAsked struct{ asked []string }

func (r *topAsked) rosters() tea.Cmd           { return r.record("rosters") }
func (r *topAsked) wait(time.Duration) tea.Cmd { return r.record("wait") }
func (r *topAsked) text(page topPage) tea.Cmd {
	return r.record(fmt.Sprint(page.kind, " of ", page.worker))
}
func (r *topAsked) restart(worker string) tea.Cmd { return r.record("restart " + worker) }

func (r *topAsked) record(what string) tea.Cmd {
	r.asked = append(r.asked, what)
	return func() tea.Msg { return nil }
}

// screen is a screen under test.
type screen struct {
	t     *testing.T
	model top
	topAsked
}

// newScreen is a screen of 160×10 that has got the workers.
func newScreen(t *testing.T, workers ...api.Worker) *screen {
	t.Helper()
	s := &screen{t: t}
	s.model = newTop(&s.topAsked, "")
	s.model.Init()
	require.Equal(t, []string{"rosters"}, s.taken())
	require.Contains(t, s.text(), "reading the workers")
	s.send(tea.WindowSizeMsg{Width: 160, Height: 10})
	s.send(topRosters{views: views(workers...), at: noon})
	require.Equal(t, []string{"wait"}, s.taken(), "the next question is asked after the interval")
	return s
}

func views(workers ...api.Worker) []api.PoolWorkers {
	view := api.PoolWorkers{Pool: "python", Size: len(workers), Workers: workers}
	for _, w := range workers {
		if w.State.InService() {
			view.Ready++
		}
	}
	return []api.PoolWorkers{view}
}

func topWorkers(n int) []api.Worker {
	workers := make([]api.Worker, n)
	for i := range workers {
		name := api.WorkerName("python", i)
		workers[i] = api.Worker{
			WorkerState: api.WorkerState{Worker: name, State: lifecycle.Ready, Host: "h1"},
			Metrics:     api.Metrics{ID: name, CurrentMemoryBytes: int64(i%7) << 20},
		}
	}
	return workers
}

func (s *screen) send(msg tea.Msg) tea.Cmd {
	s.t.Helper()
	model, cmd := s.model.Update(msg)
	s.model = model.(top)
	lines := strings.Split(s.model.View().Content, "\n")
	require.Len(s.t, lines, max(s.model.height, topChrome+1))
	for _, line := range lines {
		require.LessOrEqual(s.t, lipgloss.Width(line), s.model.width, line)
	}
	return cmd
}

// keys presses keys; a word in brackets is one key.
func (s *screen) keys(keys ...string) (last tea.Cmd) {
	s.t.Helper()
	special := map[string]rune{
		"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "end": tea.KeyEnd,
		"pgdown":    tea.KeyPgDown,
		"backspace": tea.KeyBackspace, "space": tea.KeySpace,
	}
	for _, key := range keys {
		if code, found := special[key]; found {
			last = s.send(tea.KeyPressMsg{Code: code, Text: map[bool]string{true: " "}[key == "space"]})
			continue
		}
		for _, r := range key {
			last = s.send(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
	return last
}

func (s *screen) text() string { return s.model.View().Content }

// plain is the screen without styles.
func (s *screen) plain() string { return stripStyles(s.text()) }

func stripStyles(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, text, _ = strings.Cut(after, "m")
	}
}

func (s *screen) taken() []string {
	asked := s.asked
	s.asked = nil
	return asked
}

// rows are the names of the visible workers; the chosen one is in reverse.
func (s *screen) rows() (names []string, chosen string) {
	for i, line := range strings.Split(s.text(), "\n")[3:] {
		if name, _, found := strings.Cut(stripStyles(line), " "); found && strings.Contains(name, "/") &&
			i < s.model.bodyHeight() {
			names = append(names, name)
			if strings.HasPrefix(line, "\x1b[7m") {
				chosen = name
			}
		}
	}
	return names, chosen
}

func TestTopShowsWorkersAndKeepsTheCursorOnItsWorker(t *testing.T) {
	workers := exampleView().Workers
	s := newScreen(t, workers...)
	require.Contains(t, s.plain(), "2/3 ready")
	require.Regexp(t, `python/0 +busy +99\.9 +50\.0 MiB +90 +1234 +1\.2ms +1h1m +- +2 +h1 +held by alice`, s.plain())
	require.Regexp(t, `python/1 +failed .* gave up after 10 failures`, s.plain())
	s.keys("j")
	_, chosen := s.rows()
	require.Equal(t, "python/1", chosen)
	s.keys("s") // by state: those out of service first
	names, chosen := s.rows()
	require.Equal(t, []string{"python/1", "python/0", "python/2"}, names)
	require.Equal(t, "python/1", chosen)
	s.keys("ss") // by memory
	names, chosen = s.rows()
	require.Equal(t, []string{"python/0", "python/1", "python/2"}, names)
	require.Equal(t, "python/1", chosen)
	s.keys(strings.Repeat("s", len(topColumns)-4))
	require.Contains(t, s.plain(), "WORKER↓")
	s.send(topRosters{views: views(workers[1:]...), at: noon.Add(time.Second)})
	_, chosen = s.rows()
	require.Equal(t, "python/1", chosen)
	s.send(topRosters{views: views(), at: noon})
	require.Contains(t, s.plain(), "no workers")
	s.keys("j", "enter", "l", "r")
	require.Equal(t, []string{"wait", "wait"}, s.taken(), "there is no worker to ask about")
}

func TestTopShowsWhichWorkersFailSoon(t *testing.T) {
	workers := topWorkers(3)
	workers[2].Watch, workers[2].FailsInS = "Watch closely: memory grows by 4.0 MB per minute.", 7322
	workers[2].Lease = &api.Lease{Holder: "alice"}
	workers[1].Watch = "Score only 42, but not falling."
	s := newScreen(t, workers...)
	require.Regexp(t, `python/0 .* - +0 +h1 *\n`, s.plain())
	require.Regexp(t, `python/1 .* - +0 +h1 +Score only 42, but not falling\.`, s.plain())
	require.Regexp(t, `python/2 .* 2h2m +0 +h1 +held by alice; Watch closely: memory grows`, s.plain())
	s.keys(strings.Repeat("s", len(topColumns)-4)) // before restarts and host
	require.Contains(t, s.plain(), "FAILS IN↓")
	names, _ := s.rows()
	require.Equal(t, []string{"python/2", "python/0", "python/1"}, names)
	s.keys("/", "watch", "enter")
	names, _ = s.rows()
	require.Equal(t, []string{"python/2"}, names)
}

func TestTopFilters(t *testing.T) {
	s := newScreen(t, exampleView().Workers...)
	s.keys("/", "FAILED", "space", "h1", "enter")
	names, _ := s.rows()
	require.Equal(t, []string{"python/1"}, names)
	require.Contains(t, s.plain(), `1 match "FAILED h1"`)
	s.keys("/q")
	require.Contains(t, s.plain(), "no worker matches")
	s.keys("backspace", "enter")
	require.Contains(t, s.plain(), `1 match "FAILED h1"`)
	s.keys("esc")
	names, _ = s.rows()
	require.Len(t, names, 3)
	s.keys("/x", "esc")
	require.Empty(t, s.model.filter)
}

func TestTopShowsAWorkerItsLogAndItsHistory(t *testing.T) {
	s := newScreen(t, exampleView().Workers...)
	s.keys("enter")
	require.Equal(t, []string{"worker of python/0"}, s.taken())
	require.Contains(t, s.plain(), "asking …")
	s.send(topText{page: topPage{topWorker, "python/0"}, lines: []string{"State  busy"}})
	require.Contains(t, s.plain(), "State  busy")
	s.keys("l")
	require.Equal(t, []string{"log of python/0"}, s.taken())
	s.send(topText{page: topPage{topWorker, "python/0"}, lines: []string{"an answer that comes late"}})
	require.NotContains(t, s.plain(), "late")
	log := func(last int) topText {
		text := topText{page: topPage{topLogs, "python/0"}}
		for i := range last {
			text.lines = append(text.lines, fmt.Sprintf("line %d\x1b[2J\tend", i+1))
		}
		return text
	}
	s.send(log(50))
	require.Contains(t, s.text(), `line 50\x1b[2J    end`, "control characters are shown")
	s.send(topAsk{})
	require.Equal(t, []string{"rosters", "log of python/0"}, s.taken())
	s.send(topAsk{})
	require.Equal(t, []string{"rosters"}, s.taken(), "one question about the text at a time")
	s.send(log(60))
	require.Contains(t, s.plain(), "line 60", "the page follows the log")
	s.keys("up")
	s.send(log(70))
	require.Contains(t, s.plain(), "line 54", "a page that was moved stays")
	require.NotContains(t, s.plain(), "line 61")
	s.keys("end")
	s.send(log(80))
	require.Contains(t, s.plain(), "line 80")
	s.keys("h")
	s.send(topText{page: topPage{topHistory, "python/0"}, err: "it sleeps"})
	require.Contains(t, s.plain(), "it sleeps")
	s.keys("esc")
	names, _ := s.rows()
	require.Len(t, names, 3)
	require.NotContains(t, s.plain(), "it sleeps", "the error of a page leaves with it")
}

func TestTopAsksBeforeItRestarts(t *testing.T) {
	s := newScreen(t, exampleView().Workers...)
	s.keys("r")
	require.Contains(t, s.plain(), "Restart python/0?")
	s.send(topRosters{views: views(exampleView().Workers[1:]...), at: noon}) // the question stays about its worker
	s.taken()
	s.keys("n")
	require.Empty(t, s.taken())
	require.Contains(t, s.plain(), "python/0 is not restarted")
	s.keys("j", "r", "y")
	require.Equal(t, []string{"restart python/2"}, s.taken())
	s.send(topRestarted{worker: "python/2"})
	require.Contains(t, s.plain(), "restarting python/2")
	s.send(topRestarted{worker: "python/2", err: "the pool is stopping"})
	require.Contains(t, s.plain(), "python/2 is not restarted: the pool is stopping")
}

func TestTopShowsErrorsAndContinues(t *testing.T) {
	s := newScreen(t, topWorkers(2)...)
	s.send(topRosters{err: "no Temporal server answers at localhost:7233", at: noon.Add(time.Minute)})
	require.Equal(t, []string{"wait"}, s.taken())
	require.Contains(t, s.plain(), "not current, retrying: no Temporal server answers")
	require.Contains(t, s.plain(), "12:00:00 UTC", "the time of what is shown")
	require.Contains(t, s.plain(), "python/1")
	s.send(topAsk{})
	require.Equal(t, []string{"rosters"}, s.taken())
	s.send(topRosters{views: views(topWorkers(1)...), at: noon.Add(2 * time.Minute)})
	require.NotContains(t, s.plain(), "asking again")
	require.NotContains(t, s.plain(), "python/1")
}

func TestTopShowsItsKeysAndQuits(t *testing.T) {
	s := newScreen(t, topWorkers(1)...)
	require.Contains(t, s.plain(), "r restart")
	require.Equal(t, tea.Quit(), s.keys("q")())
	require.Equal(t, tea.Quit(), s.send(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})())
	s.keys("/")
	require.Nil(t, s.keys("q"), "a letter of the filter")
}

func TestTopFitsEveryScreen(t *testing.T) {
	workers := topWorkers(30)
	workers[0].Host = "主机" + strings.Repeat("機", 40) + "\x1b[31m"
	workers[1].State, workers[1].Reason = lifecycle.Failed, strings.Repeat("長い理由 ", 100)
	workers[2].Worker = strings.Repeat("p", 60) + "/2"
	s := newScreen(t, workers...)
	for _, size := range [][2]int{{1, 1}, {20, 3}, {80, 24}, {300, 100}} {
		s.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		s.keys("j", "end", "up", "/a", "esc", "r", "n")
		s.keys("l")
		s.send(topText{page: topPage{topLogs, s.model.page.worker}, lines: strings.Split(strings.Repeat("機\t", 1000), "機")})
		s.keys("esc")
	}
}

// With 1,000 workers only the visible rows are made.
func TestTopRendersOnlyVisibleRows(t *testing.T) {
	cost := func(workers int) float64 {
		s := newScreen(t, topWorkers(workers)...)
		s.keys("end")
		names, chosen := s.rows()
		require.Len(t, names, s.model.bodyHeight())
		require.Equal(t, api.WorkerName("python", workers-1), chosen)
		return testing.AllocsPerRun(20, func() { s.model.View() })
	}
	require.InEpsilon(t, cost(50), cost(1000), 0.1)
}

func TestTopWithoutATerminalPrintsPs(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", view: exampleView()})
	for _, args := range [][]string{{}, {"python"}, {"-o", "json"}} {
		r := succeed(t, f, append([]string{"top"}, args...)...)
		require.Equal(t, ctl(t, f, append([]string{"ps"}, args...)...).out, r.out)
	}
}

func TestTopRequestsOfOnePoolAndOneWorker(t *testing.T) {
	p := &fakePool{
		name: "python", view: exampleView(),
		states: map[int][]api.WorkerState{1: {{State: lifecycle.Failed, Health: lifecycle.Healthy, Incarnation: 3,
			Host: "h1", Reason: "exit 1\nlog"}}},
		history: []lifecycle.Transition{{From: lifecycle.Created, To: lifecycle.Starting, Reason: "first"},
			{From: lifecycle.Starting, To: lifecycle.Failed, Reason: "second"}},
		logs: []api.LogLine{{Worker: "python/1", Incarnation: 3, Stream: "stderr", Text: "out of luck"}},
	}
	f := newFakeControlPlane(p)
	r := topRequests{app: &app{timeout: time.Minute, now: func() time.Time { return noon }}, ctx: t.Context(), cp: f}
	answer := r.rosters()().(topRosters)
	require.Equal(t, topRosters{views: []api.PoolWorkers{exampleView()}, at: noon}, answer)
	r.pools = []string{"python"}
	require.Equal(t, answer, r.rosters()())
	r.pools = []string{"ghost"}
	require.Equal(t, topRosters{at: noon, err: "no pool ghost is running"}, r.rosters()())

	text := func(kind topKind) string {
		answer := r.text(topPage{kind, "python/1"})().(topText)
		require.Empty(t, answer.err)
		return strings.Join(answer.lines, "\n")
	}
	require.Contains(t, text(topLogs), "#3 stderr: out of luck")
	require.Equal(t, topLogLines, p.logOptions.Tail)
	require.Regexp(t, `(?s)^WHEN.*second.*first`, text(topHistory))
	require.Regexp(t, `(?s)"state": "failed".*"reason": "exit 1\\nlog"`, text(topWorker))

	require.Equal(t, topRestarted{worker: "python/1"}, r.restart("python/1")())
	require.Equal(t, 1, *p.restart.Worker)
	require.NotEmpty(t, p.restart.By)
	require.Equal(t, []string{"restart python"}, f.requests)
}

func TestTopRequestsAreBounded(t *testing.T) {
	r := topRequests{app: &app{timeout: time.Minute, now: time.Now}, ctx: t.Context()}
	r.command(func(ctx context.Context) tea.Msg {
		deadline, bounded := ctx.Deadline()
		require.True(t, bounded)
		require.LessOrEqual(t, time.Until(deadline), topTimeout)
		return nil
	})()
}
