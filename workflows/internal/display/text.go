package display

import "strings"

// Cell fits a reason into one cell of a Markdown table.
func Cell(s string) string {
	return strings.ReplaceAll(Shorten(s), "|", "\\|")
}

// Shorten puts a reason on one line. Of a long one the beginning stays, which says what happened, and the end, where a program's
// last words are.
func Shorten(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > briefHead+briefTail {
		return string(r[:briefHead]) + " … " + string(r[len(r)-briefTail:])
	}
	return string(r)
}

const briefHead, briefTail = 200, 200

// Attributed puts a reason and who gave it into one phrase.
func Attributed(reason, by string) string {
	switch {
	case reason == "" && by == "":
		return "asked for, no reason given"
	case reason == "":
		return "asked for by " + by
	case by == "":
		return reason
	}
	return reason + " (by " + by + ")"
}
