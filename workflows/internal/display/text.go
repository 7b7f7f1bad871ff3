// Package display is what people see of workflows in the Web UI: reasons and search attributes.
package display

import "strings"

// Cell fits a reason into one cell of a Markdown table.
func Cell(s string) string {
	return strings.ReplaceAll(Shorten(s), "|", "\\|")
}

// Shorten puts a reason on one line. Of a long reason it keeps the beginning, which says what happened, and the end,
// which has the program's last output.
func Shorten(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > headRunes+tailRunes {
		return string(r[:headRunes]) + " … " + string(r[len(r)-tailRunes:])
	}
	return string(r)
}

const headRunes, tailRunes = 200, 200

// Truncate is Shorten to at most n bytes, for lists of many reasons. It keeps the beginning.
func Truncate(s string, n int) string {
	s = Shorten(s)
	if len(s) <= n {
		return s
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(s[:n-len(ellipsis)], "") + ellipsis
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
