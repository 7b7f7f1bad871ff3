// Package logging creates the structured loggers of Tempool's programs.
package logging

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// New returns a logger that writes to w: text if w is a terminal, JSON otherwise.
func New(w io.Writer, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if Terminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
