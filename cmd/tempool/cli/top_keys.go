package cli

import (
	tea "charm.land/bubbletea/v2"
)

// topKeys is the last line of tempool top.
const topKeys = "↑↓ move  enter worker  l log  h history  r restart  s sort  / filter  esc back  q quit"

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
	}
	page := max(1, m.bodyHeight()-1)
	switch name {
	case "q":
		return m, tea.Quit
	case "up", "k":
		return m.moved(-1), nil
	case "down", "j":
		return m.moved(1), nil
	case "pgup":
		return m.moved(-page), nil
	case "pgdown", "space":
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
	case "esc":
		return m.back(), nil
	case "s":
		m.column = (m.column + 1) % (len(topColumns) - 1) // not by the last one
		return m.arranged(), nil
	case "/":
		m.typing = m.page == nil
	}
	return m, nil
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
		m.filter += key.Text
	}
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
	m.lines, m.pageErr, m.firstLine, m.asking, m.note = nil, "", 0, true, ""
	m.followEnd = kind == topLogs
	return m, m.ask.text(*m.page)
}
