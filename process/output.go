package process

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tempool/tempool/process/logs"
)

// Bounds on the stored output of a subprocess.
const (
	maxLineBytes  = 64 << 10 // the rest of a longer line is dropped
	truncatedMark = " … (line cut)"
	// maxTracebackLines bounds the lines of one traceback in a worker's log.
	maxTracebackLines = 1000
	reasonLines       = 10
	reasonBytes       = 2 << 10
)

// tailOf returns only the lines that a reason contains.
func tailOf(output *logs.Output) *logs.Output {
	return output.Tail(reasonLines, func(text string) string { return truncate(text, reasonBytes/reasonLines) })
}

// lastOutput returns the newest lines as one text, short enough for the reason of a failure; "" if there was no output.
func lastOutput(output *logs.Output) string {
	lines := output.Lines()
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

// readLines calls line for each line of in, without its line ending, until in ends. It truncates lines longer than
// maxLineBytes and replaces invalid UTF-8.
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

// addOutput stores and logs one line that the process wrote.
func (p *Process) addOutput(stream, text string) {
	p.output.forward(p.logs.Add(stream, text))
}

// Bounds on the output that one incarnation adds to the agent's log: on its lines, and on their text, of which a line
// has only the beginning there. The newest lines are stored in any case.
const (
	forwardRate       = 100 // lines a second
	forwardBurst      = 1000
	forwardBytesRate  = 16 << 10 // a second
	forwardBytesBurst = 256 << 10
	forwardLine       = 4 << 10 // bytes
	// dropReportEvery is the least time between two reports of dropped lines, except for the last.
	dropReportEvery = 5 * time.Second
)

// forwarder copies the output of one incarnation to the agent's log, and counts the lines that exceed the rate.
type forwarder struct {
	logger       *slog.Logger
	lines, bytes *rate.Limiter

	mu       sync.Mutex // guards the fields below; held while a line is logged, so that lines keep their order
	dropped  int        // since the last report
	reported time.Time  // when the last report was made
	closed   bool
}

func newForwarder(logger *slog.Logger, k key) *forwarder {
	return &forwarder{
		logger: logger.With("worker", k.worker, "incarnation", k.incarnation),
		lines:  rate.NewLimiter(forwardRate, forwardBurst), bytes: rate.NewLimiter(forwardBytesRate, forwardBytesBurst),
	}
}

func (f *forwarder) forward(line logs.Line) {
	text := truncate(line.Text, forwardLine)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !f.lines.AllowN(line.At, 1) || !f.bytes.AllowN(line.At, len(text)) {
		f.dropped++
		return
	}
	if f.dropped > 0 && line.At.Sub(f.reported) >= dropReportEvery {
		f.reportDropped(line.At)
	}
	f.logger.Info(text, "stream", line.Stream)
}

// close reports what was dropped last. It does nothing the second time.
func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed && f.dropped > 0 {
		f.reportDropped(time.Now())
	}
	f.closed = true
}

func (f *forwarder) reportDropped(now time.Time) {
	f.logger.Warn("worker writes faster than its output is logged", "dropped_lines", f.dropped,
		"lines_per_second", forwardRate, "bytes_per_second", forwardBytesRate)
	f.dropped, f.reported = 0, now
}
