package spec

import (
	"fmt"
	"strings"
)

// Error is the one thing that is wrong with a spec, and what to write instead. Every error of this package about a spec's content
// is a *Error.
type Error struct {
	// File is the path as given to Load or Parse, and Line counts from 1; both are empty for specs that did not come from a file.
	File string
	Line int
	// Key is a path such as "pool.size", "pool.env.LANG" or "start.warmup[0].method", or a section; empty where the text is not TOML at all.
	Key string
	// Problem says what is wrong.
	Problem string
	// Allowed says what may stand there; empty where Problem says it all.
	Allowed string
	// Nearest is the known key, or section in brackets, closest to an unknown one.
	Nearest string
}

// Error is one line: pool.toml:3: pool.size: 0 is not allowed; allowed: a whole number from 1 to 1000
func (e *Error) Error() string {
	var text strings.Builder
	if e.File != "" {
		fmt.Fprintf(&text, "%s:", e.File)
	}
	if e.Line > 0 {
		fmt.Fprintf(&text, "%d:", e.Line)
	}
	if text.Len() > 0 {
		text.WriteByte(' ')
	}
	if e.Key != "" {
		fmt.Fprintf(&text, "%s: ", truncated(e.Key))
	}
	text.WriteString(truncated(e.Problem))
	if e.Allowed != "" {
		fmt.Fprintf(&text, "; allowed: %s", e.Allowed)
	}
	if e.Nearest != "" {
		fmt.Fprintf(&text, "; nearest known key: %s", e.Nearest)
	}
	return text.String()
}

// maxQuotedRunes keeps the line readable whatever a file holds.
const maxQuotedRunes = 200

func truncated(text string) string {
	if runes := []rune(text); len(runes) > maxQuotedRunes {
		return string(runes[:maxQuotedRunes]) + "…"
	}
	return text
}
