package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// The chart's measures, in pixels.
const (
	chartWidth  = 900
	chartLabels = 430 // where the bars begin
	chartUnit   = 150 // the length of a bar that is exactly at its target
	chartRow    = 26
	chartTop    = 44
	chartMost   = 2.6 // longer bars are cut, and say so by their number
)

// chart draws each verdict as a bar in units of its target: where the line is, the target is met exactly.
func (r *report) chart() string {
	var verdicts []*verdict
	for _, result := range r.Results {
		verdicts = append(verdicts, result.Verdicts...)
	}
	height := chartTop + chartRow*len(verdicts) + 16
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", chartWidth, height)
	line := chartLabels + chartUnit
	fmt.Fprintf(&b, `<text x="%d" y="20" text-anchor="middle">target</text>`+"\n", line)
	for i, v := range verdicts {
		y := chartTop + i*chartRow
		share := min(max(v.Measured/v.Target, 0), chartMost)
		color := "#c0392b"
		if v.Met {
			color = "#2e7d4f"
		}
		length := int(share * chartUnit)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", chartLabels-8, y+13, escaped(v.What))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="16" fill="%s"/>`+"\n", chartLabels, y, max(length, 1), color)
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", max(chartLabels+length, line)+6, y+13,
			escaped(fmt.Sprintf("%s (%s %s) %s", number(v.Measured), v.Relation, number(v.Target), v.Unit)))
	}
	fmt.Fprintf(&b, `<line x1="%d" y1="28" x2="%d" y2="%d" stroke="#333" stroke-dasharray="4 3"/>`+"\n</svg>\n", line, line, height-8)
	return b.String()
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}
