// Package logs keeps what the processes of workers write: the newest lines of each incarnation in memory, and a bounded
// log per worker on disk. Nothing that goes wrong with the disk blocks or ends a process: lines that cannot be written
// in time are dropped and counted, and the log says how many.
package logs

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The streams of a Line.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	// Tempool is the stream of lines that no process wrote: its start, its end, tracebacks of its calls, and how many
	// lines were dropped.
	Tempool = "tempool"
)

// Line is one line of a worker's log.
type Line struct {
	// Seq orders the lines of one worker on one host. It only grows, and numbers may be missing.
	Seq         int64     `json:"seq"`
	At          time.Time `json:"at"` // when it was read, by the host's clock
	Incarnation int64     `json:"incarnation"`
	Stream      string    `json:"stream"` // stdout, stderr or tempool
	// Text is valid UTF-8 of one line without its ending, at most 64 KiB and a mark that the rest was cut.
	Text string `json:"text"`
}

// appendTo appends the line as a segment has it: its fields with spaces between them, the text last.
func (l Line) appendTo(b []byte) []byte {
	b = append(strconv.AppendInt(b, l.Seq, 10), ' ')
	b = append(l.At.UTC().AppendFormat(b, time.RFC3339Nano), ' ')
	b = append(strconv.AppendInt(b, l.Incarnation, 10), ' ')
	b = append(append(b, l.Stream...), ' ')
	return append(append(b, l.Text...), '\n')
}

// parse reads what appendTo has written, without its line ending. It is false for anything else, such as a line that
// was cut at a crash.
func parse(text []byte) (l Line, ok bool) {
	var fields [4][]byte
	for i := range fields {
		if fields[i], text, ok = bytes.Cut(text, []byte{' '}); !ok {
			return l, false
		}
	}
	var failed [3]error
	l.Seq, failed[0] = strconv.ParseInt(string(fields[0]), 10, 64)
	l.At, failed[1] = time.Parse(time.RFC3339Nano, string(fields[1]))
	l.Incarnation, failed[2] = strconv.ParseInt(string(fields[2]), 10, 64)
	l.Stream = string(fields[3])
	if failed != [3]error{} || !slices.Contains([]string{Stdout, Stderr, Tempool}, l.Stream) {
		return Line{}, false
	}
	l.Text = strings.ToValidUTF8(string(text), "\uFFFD")
	return l, true
}
