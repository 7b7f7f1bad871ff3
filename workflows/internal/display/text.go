// Package display is what people see of workflows in the Web UI: reasons and search attributes.
package display

import (
	"strings"

	"github.com/tempool/tempool/internal/format"
)

// Cell fits a reason into one cell of a Markdown table.
func Cell(s string) string {
	return strings.ReplaceAll(Shorten(s), "|", "\\|")
}

// Shorten puts a reason on one line, of bounded length.
func Shorten(s string) string { return format.OneLine(s, 400) }

// Truncate is Shorten to at most n bytes, for lists of many reasons.
func Truncate(s string, n int) string {
	short := Shorten(s)
	for limit := n - len("…") + 1; len(short) > n && limit > 0; limit-- {
		short = format.OneLine(s, limit)
	}
	return short
}

// Attributed is a reason with its author, in one phrase of bounded length.
func Attributed(reason, by string) string {
	reason, by = Shorten(reason), Shorten(by)
	switch {
	case reason == "" && by == "":
		return "requested without a reason"
	case reason == "":
		return "requested by " + by
	case by == "":
		return reason
	}
	return reason + " (by " + by + ")"
}
