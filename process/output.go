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

// Bounds on the stored output of a subprocess.
const (
	maxLogLines   = 200
	maxLogBytes   = 256 << 10 // of all lines together
	maxLineBytes  = 64 << 10  // the rest of a longer line is dropped
	truncatedMark = " … (line cut)"
	reasonLines   = 10
	reasonBytes   = 2 << 10
)

// LogLine is one line that a subprocess wrote.
type LogLine struct {
	At     time.Time `json:"at"`
	Stream string    `json:"stream"` // stdout or stderr
	Text   string    `json:"text"`
}

// logRing stores the newest lines, at most maxLogLines and maxLogBytes.
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
	for len(r.lines)-drop > maxLogLines || r.bytes > maxLogBytes {
		r.bytes -= len(r.lines[drop].Text)
		drop++
	}
	if drop > 0 {
		n := copy(r.lines, r.lines[drop:])
		clear(r.lines[n:])
		r.lines = r.lines[:n]
	}
}

// all returns the lines, oldest first.
func (r *logRing) all() []LogLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]LogLine(nil), r.lines...)
}

// tail returns a new ring with only the lines that a reason contains.
func (r *logRing) tail() *logRing {
	lines := r.all()
	tail := &logRing{lines: slices.Clone(lines[len(lines)-min(len(lines), reasonLines):])}
	for i, line := range tail.lines {
		tail.lines[i].Text = strings.Clone(truncate(line.Text, reasonBytes/reasonLines))
		tail.bytes += len(tail.lines[i].Text)
	}
	return tail
}

// lastOutput returns the newest lines as one text, short enough for the reason of a failure; "" if there was no output.
func (r *logRing) lastOutput() string {
	lines := r.all()
	lines = lines[len(lines)-min(len(lines), reasonLines):]
	var newest []string
	size := 0
	for i := len(lines) - 1; i >= 0 && size < reasonBytes; i-- {
		text := truncate(lines[i].Text, reasonBytes-size)
		size += len(text)
		newest = append(newest, text)
	}
	slices.Reverse(newest)
	return strings.TrimSpace(strings.Join(newest, "\n"))
}

// truncate shortens text to at most n bytes, at a character boundary, and appends truncatedMark.
func truncate(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + truncatedMark
}

// readLines calls line for each line of in, without its line ending, until in ends. It truncates lines longer than maxLineBytes and
// replaces invalid UTF-8.
func readLines(in io.Reader, line func(string)) error {
	buffered := bufio.NewReaderSize(in, 1<<10) // small: each process has two, and most write little
	var current []byte
	dropped := false
	for {
		part, err := buffered.ReadSlice('\n')
		ended := len(part) > 0 && part[len(part)-1] == '\n'
		part = bytes.TrimRight(part, "\r\n")
		if free := maxLineBytes - len(current); len(part) > free {
			part, dropped = part[:free], true
		}
		current = append(current, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if ended || len(current) > 0 {
			text := strings.ToValidUTF8(string(current), "\uFFFD")
			if dropped {
				text += truncatedMark
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
