package cli

import (
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tempool/tempool/api"
)

// minNameWidth and maxNameWidth bound the column of the workers' names, in cells.
const minNameWidth, maxNameWidth = 10, 40

// top is the screen of tempool top. It is pure: it returns commands, and gets their results as messages.
type top struct {
	ask           topCommands
	pool          string // "" for all
	width, height int

	views []api.PoolWorkers // of the newest answer without an error
	at    time.Time         // of that answer; zero before the first
	err   string            // of the newest answer
	shown []api.Worker      // filtered and sorted

	nameWidth int // of the longest name in shown, in cells

	chosen string // name of the worker that the cursor is on: it stays there when the order changes
	cursor int    // its place in shown
	first  int    // place of the first visible row
	column int    // by which the table is sorted
	filter string
	typing bool // the keys go to the filter

	page       *topPage // of one worker; nil for the table
	lines      []string // nil before the text of the page has come
	pageErr    string
	asking     bool // its next text is being read
	firstLine  int
	followEnd  bool   // the page shows its end when lines come
	confirming string // the worker to restart, if the user agrees
	note       string // the result of the newest action
}

func newTop(ask topCommands, pool string) top {
	return top{ask: ask, pool: pool, width: 80, height: 24, nameWidth: minNameWidth}
}

// Init implements tea.Model.
func (m top) Init() tea.Cmd { return m.ask.rosters() }

// Update implements tea.Model.
func (m top) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		return m.moved(0), nil
	case topRosters:
		return m.answered(msg), m.ask.wait(msg.took)
	case topAsk:
		again := m.ask.rosters()
		if m.page == nil || m.asking {
			return m, again
		}
		m.asking = true
		return m, tea.Batch(again, m.ask.text(*m.page))
	case topText:
		return m.filled(msg), nil
	case topRestarted:
		m.note = "restarting " + msg.worker
		if msg.err != "" {
			m.note = msg.worker + " is not restarted: " + msg.err
		}
	case tea.KeyPressMsg:
		return m.press(msg)
	}
	return m, nil
}

// answered is the model with an answer. One with an error replaces what is shown only if it has some pools.
func (m top) answered(answer topRosters) top {
	m.err = answer.err
	if answer.err == "" || len(answer.views) > 0 {
		m.views, m.at = answer.views, answer.at
	}
	return m.arranged()
}

// filled is the model with the text of the page that is shown; that of another is late and dropped.
func (m top) filled(text topText) top {
	if m.page == nil || *m.page != text.page {
		return m
	}
	m.asking, m.pageErr = false, text.err
	if text.err == "" || len(text.lines) > 0 {
		m.lines = text.lines
	}
	return m.moved(0)
}

// arranged is the model with the workers of the newest answer, filtered and sorted, and the cursor on the worker it was
// on.
func (m top) arranged() top {
	m.shown = filterWorkers(workersOf(m.views), m.filter)
	sortWorkers(m.shown, m.column)
	m.nameWidth = minNameWidth
	for _, w := range m.shown {
		m.nameWidth = min(max(m.nameWidth, len(w.Worker)), maxNameWidth)
	}
	if at := slices.IndexFunc(m.shown, func(w api.Worker) bool { return w.Worker == m.chosen }); at >= 0 {
		m.cursor = at
	}
	return m.moved(0)
}

// moved is the model with the cursor of the table, or the lines of a page, moved by some rows, and both within their
// bounds.
func (m top) moved(rows int) top {
	body := m.bodyHeight()
	if m.page != nil {
		end := max(0, len(m.lines)-body)
		if rows != 0 || !m.followEnd {
			m.firstLine = clamp(m.firstLine+rows, end)
			m.followEnd = m.page.kind == topLogs && m.firstLine == end
		} else {
			m.firstLine = end
		}
		return m
	}
	m.cursor = clamp(m.cursor+rows, len(m.shown)-1)
	m.chosen = ""
	if len(m.shown) > 0 {
		m.chosen = m.shown[m.cursor].Worker
	}
	m.first = clamp(min(m.first, m.cursor), len(m.shown)-body)
	m.first = max(m.first, m.cursor-body+1)
	return m
}

// clamp is n, at most limit and at least 0.
func clamp(n, limit int) int { return max(0, min(n, limit)) }
