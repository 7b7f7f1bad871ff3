package process

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of what is kept of a subprocess's output.
const (
	keptLines   = 200
	keptBytes   = 256 << 10 // of all kept lines together
	maxLine     = 64 << 10  // the rest of a longer line is dropped
	cutMark     = " … (line cut)"
	reasonLines = 10
	reasonBytes = 2 << 10
)

// LogLine is one line that a subprocess wrote.
type LogLine struct {
	At     time.Time `json:"at"`
	Stream string    `json:"stream"` // stdout or stderr
	Text   string    `json:"text"`
}

// logRing keeps the newest lines, at most keptLines and keptBytes.
type logRing struct {
	mu    sync.Mutex
	lines []LogLine
	bytes int
}

func (r *logRing) add(line LogLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	r.bytes += len(line.Text)
	drop := 0
	for len(r.lines)-drop > keptLines || r.bytes > keptBytes {
		r.bytes -= len(r.lines[drop].Text)
		drop++
	}
	if drop > 0 {
		n := copy(r.lines, r.lines[drop:])
		clear(r.lines[n:])
		r.lines = r.lines[:n]
	}
}

// all returns the kept lines, oldest first.
func (r *logRing) all() []LogLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]LogLine(nil), r.lines...)
}

// tail returns a ring of its own with only what a reason shows.
func (r *logRing) tail() *logRing {
	lines := r.all()
	kept := &logRing{lines: slices.Clone(lines[len(lines)-min(len(lines), reasonLines):])}
	for i, line := range kept.lines {
		kept.lines[i].Text = strings.Clone(cut(line.Text, reasonBytes/reasonLines))
		kept.bytes += len(kept.lines[i].Text)
	}
	return kept
}

// lastWords are the newest lines as one text, short enough for the reason of a failure. Empty if there was no output.
func (r *logRing) lastWords() string {
	lines := r.all()
	lines = lines[len(lines)-min(len(lines), reasonLines):]
	var words []string
	size := 0
	for i := len(lines) - 1; i >= 0 && size < reasonBytes; i-- {
		text := cut(lines[i].Text, reasonBytes-size)
		size += len(text)
		words = append(words, text)
	}
	var joined strings.Builder
	for i := len(words) - 1; i >= 0; i-- {
		joined.WriteString(words[i])
		if i > 0 {
			joined.WriteByte('\n')
		}
	}
	return strings.TrimSpace(joined.String())
}

// cut shortens text to at most n bytes and a mark, between characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + cutMark
}

// readLines calls line for each line of in, without its end, until in ends. Of a line longer than maxLine the rest is dropped, and
// what is not UTF-8 is replaced.
func readLines(in io.Reader, line func(string)) error {
	buffered := bufio.NewReaderSize(in, 1<<10) // each process has two, and most say little
	var current []byte
	dropped := false
	for {
		part, err := buffered.ReadSlice('\n')
		ended := len(part) > 0 && part[len(part)-1] == '\n'
		part = bytes.TrimRight(part, "\r\n")
		if room := maxLine - len(current); len(part) > room {
			part, dropped = part[:room], true
		}
		current = append(current, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if ended || len(current) > 0 {
			text := strings.ToValidUTF8(string(current), "\uFFFD")
			if dropped {
				text += cutMark
			}
			line(text)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		current, dropped = nil, false
	}
}
