// Package logging creates the structured loggers of Tempool's programs.
package logging

import (
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/tempool/tempool/internal/redact"
)

// New returns a logger that writes to w: text if w is a terminal, JSON otherwise. It hides secrets in messages, texts
// and errors, and durations have a unit ("4.2s").
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if Terminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func readable(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration: // a bare number of nanoseconds in JSON
		a.Value = slog.StringValue(a.Value.Duration().Round(time.Microsecond).String())
	case slog.KindString:
		a.Value = slog.StringValue(redact.URLs(a.Value.String()))
	case slog.KindAny:
		if err, is := a.Value.Any().(error); is {
			a.Value = slog.AnyValue(redact.Error(err))
		}
	}
	return a
}

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
