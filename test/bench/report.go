package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/load"
)

// report is the JSON of one run.
type report struct {
	At      time.Time `json:"at"`
	Commit  string    `json:"commit,omitempty"`
	CPU     string    `json:"cpu,omitempty"`
	Cores   int       `json:"cores"`
	System  string    `json:"system"`
	Go      string    `json:"go"`
	Python  string    `json:"python"`
	Results []*result `json:"results"`
}

// result is the result of one benchmark.
type result struct {
	Name       string          `json:"name"`
	What       string          `json:"what"`
	Rounds     int             `json:"rounds"`
	Seconds    float64         `json:"seconds"`
	LoadBefore string          `json:"load_before"` // averages over 1, 5 and 15 minutes
	LoadAfter  string          `json:"load_after"`
	Rows       []*series       `json:"rows"`
	Targets    []*targetResult `json:"targets"`
	Notes      []string        `json:"notes,omitempty"`
}

// targetResult compares one measured number with its target.
type targetResult struct {
	What     string  `json:"what"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Relation string  `json:"relation"` // ≤ or ≥
	Target   float64 `json:"target"`
	Met      bool    `json:"met"`
}

// series holds the values of one quantity, one per round or event.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
	// Median, quartiles, minimum and maximum of Values.
	Median float64 `json:"median"`
	Low    float64 `json:"q1"`
	High   float64 `json:"q3"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func (s *series) add(values ...float64) {
	s.Values = append(s.Values, values...)
	sorted := slices.Sorted(slices.Values(s.Values))
	s.Median, s.Low, s.High = quantile(sorted, 0.5), quantile(sorted, 0.25), quantile(sorted, 0.75)
	s.Min, s.Max = sorted[0], sorted[len(sorted)-1]
}

// quantile interpolates linearly between the two nearest values. sorted must not be empty.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

func median(values []float64) float64 { return quantile(slices.Sorted(slices.Values(values)), 0.5) }

// row adds a series to the table.
func (r *result) row(name, unit string) *series {
	s := &series{Name: name, Unit: unit}
	r.Rows = append(r.Rows, s)
	return s
}

// ratio adds the quotients of two series per round, so that the load of the machine in a round cancels out.
func (r *result) ratio(name string, over, under *series) *series {
	s := r.row(name, "×")
	for i := range min(len(over.Values), len(under.Values)) {
		s.add(over.Values[i] / under.Values[i])
	}
	return s
}

func (r *result) atMost(what string, measured, target float64, unit string) {
	r.Targets = append(r.Targets, &targetResult{what, measured, unit, "≤", target, measured <= target})
}

func (r *result) atLeast(what string, measured, target float64, unit string) {
	r.Targets = append(r.Targets, &targetResult{what, measured, unit, "≥", target, measured >= target})
}

func (r *result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// print writes the result as text.
func (r *result) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmedian\tq1\tq3\tmin\tmax\tn\tunit\t")
	for _, s := range r.Rows {
		if len(s.Values) > 0 {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t\n", s.Name, number(s.Median), number(s.Low), number(s.High),
				number(s.Min), number(s.Max), len(s.Values), s.Unit)
		}
	}
	check(w.Flush())
	for _, v := range r.Targets {
		word := map[bool]string{true: "met", false: "MISSED"}[v.Met]
		fmt.Fprintf(out, "  %s: %s %s, target %s %s: %s\n", v.What, number(v.Measured), v.Unit, v.Relation, number(v.Target),
			word)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(out, "  "+note)
	}
	fmt.Fprintf(out, "  load average %s before, %s after, %d cores; took %.0f s\n", r.LoadBefore, r.LoadAfter,
		runtime.NumCPU(), r.Seconds)
}

// number formats v with about three digits.
func number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (r *report) write(path string) {
	text := must(json.MarshalIndent(r, "", "  "))
	check(os.WriteFile(path, append(text, '\n'), 0o644))
}

// loadAverage returns the averages over 1, 5 and 15 minutes, or "unknown" where the system has none.
func loadAverage() string {
	average, err := load.Avg()
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.2f %.2f %.2f", average.Load1, average.Load5, average.Load15)
}

// cpuModel returns the model name of the processor, or "".
func cpuModel() string {
	if all, _ := cpu.Info(); len(all) > 0 { // optional
		return all[0].ModelName
	}
	return ""
}
