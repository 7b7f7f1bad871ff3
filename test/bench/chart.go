package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Dimensions of the chart, in pixels.
const (
	chartWidth  = 900
	chartLabels = 430 // x of the bars
	chartUnit   = 150 // length of a bar that equals its target
	chartRow    = 26
	chartTop    = 44
	chartMost   = 2.6 // maximum length in units of the target
)

// chart draws each target as a bar in units of the target; a vertical line marks the target.
func (r *report) chart() string {
	var targets []*targetResult
	for _, result := range r.Results {
		targets = append(targets, result.Targets...)
	}
	height := chartTop + chartRow*len(targets) + 16
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", chartWidth, height)
	line := chartLabels + chartUnit
	fmt.Fprintf(&b, `<text x="%d" y="20" text-anchor="middle">target</text>`+"\n", line)
	for i, v := range targets {
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
	_ = xml.EscapeText(&b, []byte(s)) // writes to a Builder do not fail
	return b.String()
}
