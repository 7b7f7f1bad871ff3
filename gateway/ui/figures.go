package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/format"
)

// shownMethods bounds the tables of methods.
const shownMethods = 10

// hourView is what happened to the calls of a pool in the last hour.
type hourView struct {
	Charts  []plot
	Summary string // what was counted, in words
	Marked  bool   // there are vertical lines
	Methods []methodTable
}

type methodTable struct {
	Title string
	Rows  []api.MethodFigures
}

// minuteFigures are those of a minute at all gateways. Rates are added up, since the newest minute is not equally long
// at all of them.
type minuteFigures struct {
	api.Figures
	calls, errors float64 // a second
}

// lastHour has the minutes of an hour by their age; nil for those that no gateway knows.
type lastHour struct {
	window
	minutes [api.FigureMinutes]*minuteFigures
}

// line has a point for each minute whose value is known.
func (h lastHour) line(value func(*minuteFigures) (float64, bool)) (points []point) {
	for ago := len(h.minutes) - 1; ago >= 0; ago-- {
		if m := h.minutes[ago]; m != nil {
			if v, known := value(m); known {
				points = append(points, point{at: h.end.Add(-time.Duration(ago) * time.Minute), value: v})
			}
		}
	}
	return points
}

// hourChart is what a chart of the last hour shows, the highest line first.
type hourChart struct {
	title string
	least float64 // at the top of the axis
	text  func(float64) string
	lines []hourLine
}

type hourLine struct {
	name  string // "" for that of the chart
	value func(*minuteFigures) (v float64, known bool)
}

var hourCharts = []hourChart{
	{"calls a second", 0.1, format.Rate, only(func(m *minuteFigures) float64 { return m.calls })},
	{"errors a second", 0.1, format.Rate, only(func(m *minuteFigures) float64 { return m.errors })},
	{"time on a worker", 1, format.Milliseconds, percentiles(func(m *minuteFigures) api.Times { return m.Serving })},
	{"time in the queue", 1, format.Milliseconds, percentiles(func(m *minuteFigures) api.Times { return m.Waiting })},
	{"longest queue", 1, countText, only(func(m *minuteFigures) float64 { return float64(m.Queue) })},
}

func only(value func(*minuteFigures) float64) []hourLine {
	return []hourLine{{"", func(m *minuteFigures) (float64, bool) { return value(m), true }}}
}

func percentiles(of func(*minuteFigures) api.Times) (lines []hourLine) {
	for _, percent := range []float64{99, 95, 50} {
		lines = append(lines, hourLine{fmt.Sprint(" p", percent), func(m *minuteFigures) (float64, bool) {
			return float64(of(m).Quantile(percent/100).Microseconds()) / 1000, len(of(m)) > 0
		}})
	}
	return lines
}

// newHourView adds the figures of gateways up; nil if they have none. The newest minutes of all gateways count as one,
// and so on: no clocks of two hosts are compared.
func newHourView(all []api.RecentQueue, now time.Time) *hourView {
	hour := lastHour{window: hourUntil(now)}
	var sum api.Figures
	var methods []api.MethodFigures
	for _, gateway := range all {
		methods = append(methods, gateway.Methods...)
		for _, one := range gateway.Minutes {
			ago := max(0, int64(one.AgeMS)) / time.Minute.Milliseconds()
			if ago >= api.FigureMinutes {
				continue
			}
			if hour.minutes[ago] == nil {
				hour.minutes[ago] = &minuteFigures{}
			}
			m, seconds := hour.minutes[ago], max(1, float64(one.Seconds))
			m.Add(one, true)
			m.calls, m.errors = m.calls+float64(one.Calls)/seconds, m.errors+float64(one.Errors.Sum())/seconds
			one.Waiting, one.Serving = nil, nil
			sum.Add(one, false)
		}
	}
	if sum.Seconds == 0 {
		return nil
	}
	marks := func(deployed bool) (places []string) {
		for _, p := range hour.line(func(m *minuteFigures) (float64, bool) {
			return 0, slices.ContainsFunc(m.Processes, func(c api.Count) bool { return deployed == (c.Name == api.Deployed) })
		}) {
			places = append(places, string(appendTenths(nil, chartWidth*hour.place(p.at))))
		}
		return places
	}
	ends, deploys := marks(false), marks(true)
	view := &hourView{Summary: summaryOf(sum), Marked: len(sum.Processes) > 0, Methods: tablesOf(methods)}
	for _, c := range hourCharts {
		p := c.draw(hour)
		p.Starts, p.Deploys = ends, deploys
		view.Charts = append(view.Charts, p)
	}
	return view
}

func (c hourChart) draw(hour lastHour) (p plot) {
	var a axis
	var newest []string
	for i, line := range c.lines {
		points := hour.line(line.value)
		if i == 0 {
			a = zeroAxis(points, c.least, decimal)
		}
		one := newPlot(points, hour.window, a, chartWidth, chartHeight, c.title+line.name, c.text)
		newest = append(newest, strings.TrimSpace(line.name+" "+one.Now))
		if i == 0 {
			p = one
		} else {
			p.Below, p.Text = append(p.Below, one.D), p.Text+"; "+one.Text
		}
	}
	p.Title, p.Now = c.title, strings.Join(newest, " · ")
	return p
}

// summaryOf says what was counted.
func summaryOf(sum api.Figures) string {
	text := format.Plural(int(sum.Calls), "call")
	for _, counts := range []struct {
		what string
		api.Counts
	}{{"failed", sum.Errors}, {"processes", sum.Processes}} {
		for i, one := range slices.SortedStableFunc(slices.Values(counts.Counts),
			func(a, b api.Count) int { return cmp.Compare(b.Count, a.Count) }) {
			text += []string{"; " + counts.what + ": ", ", "}[min(i, 1)] + fmt.Sprint(one.Count, " ", one.Name)
		}
	}
	return text + "."
}

// tablesOf are the slowest methods, and those that failed most often.
func tablesOf(methods []api.MethodFigures) (tables []methodTable) {
	slowest := api.AddMethods(methods...)
	failing := slices.DeleteFunc(slices.Clone(slowest), func(m api.MethodFigures) bool { return m.Errors == 0 })
	slices.SortStableFunc(slowest, func(a, b api.MethodFigures) int { return cmp.Compare(b.Mean(), a.Mean()) })
	slices.SortStableFunc(failing, func(a, b api.MethodFigures) int { return cmp.Compare(b.Errors, a.Errors) })
	for _, t := range []methodTable{{"Slowest methods", slowest}, {"Most failing methods", failing}} {
		if t.Rows = t.Rows[:min(shownMethods, len(t.Rows))]; len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}
