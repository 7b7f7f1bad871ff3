package logs

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds on the newest lines of an incarnation, which are in memory.
const (
	MaxLines = 200
	MaxBytes = 256 << 10 // of all lines together
)

// Output takes the lines of one incarnation: it has the newest ones in memory and passes each on to its worker's log.
// All methods are safe for concurrent use; none waits for the disk. The zero Output belongs to no log.
type Output struct {
	log         *workerLog // nil for none
	incarnation int64

	mu     sync.Mutex
	lines  []Line
	bytes  int
	closed bool
}

// Add adds a line that the process wrote.
func (o *Output) Add(stream, text string) Line {
	line := Line{At: time.Now(), Incarnation: o.incarnation, Stream: stream, Text: text}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, line)
	o.bytes += len(line.Text)
	o.trimLocked()
	if o.log != nil && !o.closed {
		o.log.add(line)
	}
	return line
}

func (o *Output) trimLocked() {
	drop := 0
	for len(o.lines)-drop > MaxLines || o.bytes > MaxBytes {
		o.bytes -= len(o.lines[drop].Text)
		drop++
	}
	clear(o.lines[:drop])
	o.lines = o.lines[drop:]
}

// Resume adds the newest lines of the incarnation from an earlier agent, whose log has them.
func (o *Output) Resume(lines []Line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, lines...)
	for _, line := range lines {
		o.bytes += len(line.Text)
	}
	o.trimLocked()
}

// Note adds a line of stream Tempool to the worker's log. It is not among the Lines, which are the program's.
func (o *Output) Note(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log != nil && !o.closed {
		o.log.add(Line{At: time.Now(), Incarnation: o.incarnation, Stream: Tempool, Text: text})
	}
}

// Close ends the incarnation's part of the log: what is still in memory is written soon. It does nothing the second
// time.
func (o *Output) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log != nil && !o.closed {
		o.log.leave(o.incarnation)
	}
	o.closed = true
}

// Lines returns the newest lines, oldest first.
func (o *Output) Lines() []Line {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Line(nil), o.lines...)
}

// Tail returns the newest n lines, each changed by shorten, without the memory of the others.
func (o *Output) Tail(n int, shorten func(string) string) *Output {
	lines := o.Lines()
	tail := &Output{incarnation: o.incarnation, lines: slices.Clone(lines[len(lines)-min(len(lines), n):]), closed: true}
	for i, line := range tail.lines {
		tail.lines[i].Text = strings.Clone(shorten(line.Text))
		tail.bytes += len(tail.lines[i].Text)
	}
	return tail
}
