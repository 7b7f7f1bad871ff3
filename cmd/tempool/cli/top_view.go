package cli

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tempool/tempool/api"
)

// topChrome are the lines around the table or the text: the title, a line for errors and notes, the titles of the
// columns, the keys.
const topChrome = 4

var (
	boldStyle    = lipgloss.NewStyle().Bold(true)
	faintStyle   = lipgloss.NewStyle().Faint(true)
	reverseStyle = lipgloss.NewStyle().Reverse(true)
	redStyle     = lipgloss.NewStyle().Foreground(lipgloss.Red)
	yellowStyle  = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
)

// bodyHeight is the number of rows of the table, or lines of a page, that fit.
func (m top) bodyHeight() int { return max(1, m.height-topChrome) }

// View is that of tea.Model. It makes only the rows that are visible.
func (m top) View() tea.View {
	body := m.viewTable()
	if m.page != nil {
		body = m.viewPage()
	}
	body = append(body[:min(len(body), m.bodyHeight()+1)], make([]string, max(0, m.bodyHeight()+1-len(body)))...)
	text := append([]string{boldStyle.Render(m.title()), m.message()}, body...)
	text = append(text, m.footer())
	for i, line := range text {
		text[i] = ansi.Truncate(line, m.width, "")
	}
	view := tea.NewView(strings.Join(text, "\n"))
	view.AltScreen = true
	view.WindowTitle = "tempool top"
	return view
}

// title says what is shown, and of when it is.
func (m top) title() string {
	parts := []string{"tempool top"}
	if m.pool != "" {
		parts = append(parts, "pool "+m.pool)
	}
	switch {
	case m.page != nil:
		parts = append(parts, fmt.Sprintf("%s of %s", m.page.kind, m.page.worker))
	case endedTitle(m.views) != "":
		parts = append(parts, endedTitle(m.views))
	case !m.at.IsZero():
		parts = append(parts, readyText(m.views))
		if summary := ratesSummary(m.views); summary != "" {
			parts = append(parts, summary)
		}
	}
	if m.filter != "" && m.page == nil {
		parts = append(parts, fmt.Sprintf("%d match %q", len(m.shown), m.filter))
	}
	if !m.at.IsZero() {
		parts = append(parts, m.at.UTC().Format(time.TimeOnly)+" UTC")
	}
	return strings.Join(parts, "  ")
}

// message is the most important message for the user: an error, else the result of the newest action.
func (m top) message() string {
	switch {
	case m.err != "" && m.at.IsZero():
		return redStyle.Render("asking again: " + printable(m.err))
	case m.err != "":
		return redStyle.Render("not current, retrying: " + printable(m.err))
	case m.page != nil && m.pageErr != "":
		return redStyle.Render(printable(m.pageErr))
	}
	return yellowStyle.Render(printable(m.note))
}

func (m top) footer() string {
	switch {
	case m.confirming != "":
		return reverseStyle.Render(" Restart " + m.confirming + "? It drains first and starts again as a new process. y / n ")
	case m.typing:
		return "Filter: " + m.filter + "▏ " + faintStyle.Render("enter applies it, esc removes it")
	}
	return faintStyle.Render(topKeys)
}

func (m top) viewTable() []string {
	var header strings.Builder
	for i, column := range topColumns {
		title := column.title
		if i == m.column {
			title += "↓"
		}
		header.WriteString(pad(title, m.columnWidth(i)))
	}
	rows := []string{boldStyle.Render(header.String())}
	switch {
	case len(m.shown) > 0:
	case m.at.IsZero():
		return append(rows, faintStyle.Render("reading the workers …"))
	case m.filter != "":
		return append(rows, faintStyle.Render("no worker matches; esc removes the filter"))
	default:
		return append(rows, faintStyle.Render("no workers; tempool pool start -f pool.toml starts a pool"))
	}
	for i := m.first; i < min(m.first+m.bodyHeight(), len(m.shown)); i++ {
		rows = append(rows, m.row(m.shown[i], i == m.cursor))
	}
	return rows
}

func (m top) row(w api.Worker, chosen bool) string {
	var cells strings.Builder
	for i, column := range topColumns {
		cells.WriteString(pad(printable(oneLine(column.cell(w), m.width)), m.columnWidth(i)))
	}
	line := ansi.Truncate(cells.String(), m.width, "")
	switch {
	case chosen:
		return reverseStyle.Render(pad(line, m.width-1))
	case w.State.Outcome():
		return redStyle.Render(line)
	case !w.State.InService():
		return yellowStyle.Render(line)
	}
	return line
}

// columnWidth is the width of a column in cells: the first one, with the names, is as wide as they are.
func (m top) columnWidth(column int) int {
	if column == 0 {
		return m.nameWidth
	}
	return topColumns[column].width
}

// pad makes a cell of a column, with a blank after it. Width 0 leaves the text as it is.
func pad(text string, width int) string {
	if width <= 0 {
		return text
	}
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(0, width-lipgloss.Width(text))+1)
}

// viewPage is the visible part of a page's text.
func (m top) viewPage() []string {
	switch {
	case m.lines == nil && m.asking:
		return []string{faintStyle.Render("asking …")}
	case m.lines == nil:
		return []string{faintStyle.Render("not read yet; asks again")}
	case len(m.lines) == 0:
		return []string{faintStyle.Render("nothing yet")}
	}
	last := min(m.firstLine+m.bodyHeight(), len(m.lines))
	page := []string{faintStyle.Render(fmt.Sprintf("lines %d to %d of %d", min(m.firstLine+1, last), last, len(m.lines)))}
	for _, line := range m.lines[m.firstLine:last] {
		page = append(page, strings.ReplaceAll(printable(line), "\t", "    "))
	}
	return page
}
