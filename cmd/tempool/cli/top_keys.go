package cli

import (
	"strings"

	tea "charm.land/bubbletea/v2"
)

// maxFilterRunes bounds what a user types as filter.
const maxFilterRunes = 60

// topKeys is the help of tempool top.
var topKeys = []string{
	"↑ ↓ j k          move; page up and down, space, home g, end G",
	"enter            the state of its workflow",
	"l                its log: what its processes wrote",
	"h                its history: transitions, newest first",
	"r                restart it, after confirmation",
	"s S              sort by the next or the previous column",
	"o                reverse the order",
	"/                filter by words in name, state, host, holder and reason; esc removes the filter",
	"esc              back to the table",
	"?                this help",
	"q                quit",
}

// press is what a key does.
func (m top) press(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := key.String()
	switch {
	case name == "ctrl+c":
		return m, tea.Quit
	case m.confirming != "":
		return m.answer(name)
	case m.typing:
		return m.pressInFilter(key), nil
	case m.help:
		m.help = false
		if name == "q" {
			return m, tea.Quit
		}
		return m, nil
	}
	page := max(1, m.bodyHeight()-1)
	switch name {
	case "q":
		return m, tea.Quit
	case "?":
		m.help = true
	case "up", "k":
		return m.moved(-1), nil
	case "down", "j":
		return m.moved(1), nil
	case "pgup", "ctrl+b":
		return m.moved(-page), nil
	case "pgdown", "ctrl+f", "space":
		return m.moved(page), nil
	case "home", "g":
		return m.moved(-len(m.shown) - len(m.lines)), nil
	case "end", "G":
		return m.moved(len(m.shown) + len(m.lines)), nil
	case "enter":
		return m.open(topWorker)
	case "l":
		return m.open(topLogs)
	case "h":
		return m.open(topHistory)
	case "r":
		m.confirming, m.note = m.subject(), ""
	case "esc", "backspace", "left":
		return m.back(), nil
	case "s", "S", "o", "/":
		if m.page == nil {
			return m.pressInTable(name), nil
		}
	}
	return m, nil
}

// pressInTable sorts and filters.
func (m top) pressInTable(name string) top {
	switch name {
	case "s":
		m.column, m.reversed = (m.column+1)%topSortable, false
	case "S":
		m.column, m.reversed = (m.column+topSortable-1)%topSortable, false
	case "o":
		m.reversed = !m.reversed
	case "/":
		m.typing = true
	}
	return m.arranged()
}

func (m top) pressInFilter(key tea.KeyPressMsg) top {
	switch key.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	default:
		return m.typed(key.Text)
	}
	return m.arranged()
}

// typed adds text to the filter.
func (m top) typed(text string) top {
	runes := []rune(m.filter + strings.Join(strings.FieldsFunc(text, isControl), " "))
	m.filter = string(runes[:min(len(runes), maxFilterRunes)])
	return m.arranged()
}

// answer is the answer to the question whether to restart a worker: anything but yes is no.
func (m top) answer(name string) (tea.Model, tea.Cmd) {
	worker := m.confirming
	m.confirming = ""
	if name != "y" && name != "Y" {
		m.note = worker + " is not restarted"
		return m, nil
	}
	m.note = "asking to restart " + worker
	return m, m.ask.restart(worker)
}

// back leaves a page, or else removes the filter.
func (m top) back() top {
	if m.page == nil {
		m.filter = ""
		return m.arranged()
	}
	m.page, m.lines, m.note = nil, nil, ""
	return m.arranged()
}

// subject is the worker that a key is about; "" if there is none.
func (m top) subject() string {
	if m.page != nil {
		return m.page.worker
	}
	return m.chosen
}

// open shows a page of a worker.
func (m top) open(kind topKind) (tea.Model, tea.Cmd) {
	worker := m.subject()
	if worker == "" {
		return m, nil
	}
	m.page = &topPage{kind, worker}
	m.lines, m.pageErr, m.firstLine, m.loaded, m.asking, m.note = nil, "", 0, false, true, ""
	m.followEnd = kind == topLogs
	return m, m.ask.text(*m.page)
}
