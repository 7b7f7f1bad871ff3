package process

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

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
