package ui

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tempool/tempool/internal/format"
)

// plotSpan is the time that most plots show, and plotStep the step of their right end, so that plots of the same values
// are the same text.
const (
	plotSpan = 10 * time.Minute
	plotStep = 10 * time.Second
)

// window is the time that a plot shows.
type window struct {
	end  time.Time
	span time.Duration
	// gap is the longest time between two samples that a line joins.
	gap time.Duration
}

// minutesUntil is the window of the plots of a page that show samples, hourUntil that of those that show minutes.
func minutesUntil(now time.Time) window { return window{endOfPlots(now), plotSpan, 45 * time.Second} }
func hourUntil(now time.Time) window    { return window{endOfPlots(now), time.Hour, 90 * time.Second} }

// place is how far right a time is, from 0 to 1.
func (w window) place(at time.Time) float64 {
	return 1 - min(1, max(0, float64(w.end.Sub(at))/float64(w.span)))
}

type point struct {
	at          time.Time
	incarnation int64
	value       float64
}

// plot is a line of values over a window as a picture of Width by Height, whose top is Top. Without any value,
// D is "".
type plot struct {
	Width, Height int
	// D is the path of the line, of letters, digits, points and spaces.
	D string
	// Text says in words what the line shows.
	Text string
	// Top is the value at the top, Most the greatest one and Now the newest one, as text.
	Title, Top, Most, Now string
	// Limit is the height of a line that the value should stay below; 0 for none.
	Limit float64
	// Starts are the places of the first samples of later incarnations, or of restarts, and Deploys those of deploys.
	Starts, Deploys []string
	Below           []string // the paths of further lines
	Ago             string   // when the window begins
}

func appendPlace(b []byte, x, y float64) []byte {
	return appendTenths(append(appendTenths(b, x), ' '), y)
}

// appendTenths appends a number from 0 on, rounded to a tenth.
func appendTenths(b []byte, x float64) []byte {
	n := int64(math.Round(10 * max(0, x)))
	if b = strconv.AppendInt(b, n/10, 10); n%10 != 0 {
		b = append(b, '.', byte('0'+n%10))
	}
	return b
}

type axis struct{ low, high float64 }

// sparkAxis makes changes of a tenth visible, wherever they are: a line in a table has no axis.
func sparkAxis(points []point) axis {
	low, high := bounds(points)
	if rest := 0.1*math.Abs(high) - (high - low); rest > 0 {
		low, high = low-rest/2, high+rest/2
	}
	if high <= low {
		high = low + 1
	}
	return axis{low, high}
}

// zeroAxis begins at 0 and ends at a round number that is at least least.
func zeroAxis(points []point, least float64, steps []float64) axis {
	_, high := bounds(points)
	return axis{0, roundUp(max(high, least), steps)}
}

// decimal and binary are the first digits of round numbers: of counts, and of bytes.
var (
	decimal = []float64{1, 2, 5, 10}
	binary  = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// roundUp is the least round number that is not below x: one of steps, which begin with 1, times a power of the last of
// them.
func roundUp(x float64, steps []float64) float64 {
	base := steps[len(steps)-1]
	unit := math.Pow(base, math.Floor(math.Log(max(x, 1e-9))/math.Log(base)))
	for _, step := range steps {
		if step*unit >= x*(1-1e-12) {
			return step * unit
		}
	}
	return base * unit
}

func bounds(points []point) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range points {
		low, high = min(low, p.value), max(high, p.value)
	}
	return low, high
}

func (w window) recent(points []point) []point {
	for len(points) > 0 && points[0].at.Before(w.end.Add(-w.span)) {
		points = points[1:]
	}
	return points
}

// endOfPlots is the right end of the plots of a page.
func endOfPlots(now time.Time) time.Time { return now.Truncate(plotStep).Add(plotStep) }

// newPlot draws points, oldest first. what names them and text writes a value.
func newPlot(points []point, w window, a axis, width, height int, what string, text func(float64) string) plot {
	p := plot{Width: width, Height: height, Title: what, Ago: fmt.Sprintf("%.0f min ago", w.span.Minutes())}
	if len(points) == 0 {
		return p
	}
	line := make([]byte, 0, 12*len(points))
	for i, one := range points {
		before := point{}
		if i > 0 {
			before = points[i-1]
		}
		later := i > 0 && before.incarnation != one.incarnation
		begins := i == 0 || later || one.at.Sub(before.at) > w.gap
		x := float64(width) * w.place(one.at)
		y := 1 + float64(height-2)*(1-(one.value-a.low)/(a.high-a.low))
		if later {
			p.Starts = append(p.Starts, string(appendTenths(nil, x)))
		}
		if !begins {
			line = appendPlace(append(line, 'L'), x, y)
			continue
		}
		line = append(appendPlace(append(line, 'M'), x, y), 'h', '0') // a line to itself, which a round cap makes a dot
	}
	p.D, p.Top = string(line), text(a.high)
	low, high := bounds(points)
	p.Most, p.Now = text(high), text(points[len(points)-1].value)
	minutes := int(math.Round(min(w.span, max(time.Minute, w.end.Sub(points[0].at))).Minutes()))
	p.Text = fmt.Sprintf("%s, last %s: least %s, most %s, newest %s", what, format.Plural(minutes, "minute"), text(low),
		p.Most, p.Now)
	if n := len(p.Starts); n > 0 {
		p.Text += fmt.Sprintf("; %s since", format.Plural(n, "start"))
	}
	return p
}

// withLimit adds the line of a limit, if the picture is high enough for it.
func (p plot) withLimit(limit float64, a axis) plot {
	if p.D != "" && limit > 0 && limit <= a.high {
		p.Limit = math.Round(10*(1+float64(p.Height-2)*(1-limit/a.high))) / 10
	}
	return p
}
