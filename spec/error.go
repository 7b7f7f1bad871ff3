package spec

import (
	"fmt"
	"strings"

	"github.com/tempool/tempool/internal/redact"
)

// Error is the first error of a spec, and what to write instead. Every error of this package about the content of a
// spec is a *Error.
type Error struct {
	// File is the path given to Load or Parse. Line counts from 1. Both are empty for specs that do not come from a file.
	File string
	Line int
	// Key is a path such as "pool.size", "pool.env.LANG" or "start.warmup[0].method", or a section; empty if the text is
	// not TOML, or the whole spec too large.
	Key string
	// Problem says what is wrong.
	Problem string
	// Allowed describes the allowed values; it may be empty.
	Allowed string
	// Nearest is the known key, or section in brackets, that is most similar to an unknown one.
	Nearest string
}

// Error returns one line without secrets, such as pool.toml:3: pool.size: 0 is not allowed; allowed: a whole number
// from 1 to 1000
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
	text.WriteString(truncated(redact.Text(e.Problem)))
	if e.Allowed != "" {
		fmt.Fprintf(&text, "; allowed: %s", e.Allowed)
	}
	if e.Nearest != "" {
		fmt.Fprintf(&text, "; nearest known key: %s", e.Nearest)
	}
	return text.String()
}

// maxQuotedRunes bounds what an error quotes of a file.
const maxQuotedRunes = 200

func truncated(text string) string {
	if runes := []rune(text); len(runes) > maxQuotedRunes {
		return string(runes[:maxQuotedRunes]) + "…"
	}
	return text
}
