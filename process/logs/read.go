package logs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// maxStoredLine bounds a line of a file: its text, a mark that it was cut, and the fields before it.
const maxStoredLine = 128 << 10

// diskTimeout is how long a reader waits for a disk that does not answer.
const diskTimeout = 10 * time.Second

// Cursor is a place in a worker's log: behind the lines that were read. The zero Cursor is before the first line.
type Cursor struct {
	Seq     int64 // of the last line
	segment int64 // the first number of the file that was read last
	offset  int64 // in it
}

// Read calls yield for each line of a worker behind the cursor, oldest first, until yield returns false, and moves the
// cursor. A worker without a log has no lines. Lines that were deleted before they were read are skipped. It fails if
// ctx ends, or if the disk does not answer within 10 s.
func (s *Store) Read(ctx context.Context, worker string, cursor *Cursor, yield func(Line) bool) error {
	w := s.known(worker)
	if w == nil {
		return nil
	}
	locking, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	if err := w.lock(locking); err != nil {
		return err
	}
	_, _ = w.flushLocked(false) // what cannot be written is pending
	files := append([]segment(nil), w.segments.list...)
	w.mu.Lock()
	pending := slices.Concat(w.batch, w.pendingLocked(len(w.pending)))
	w.mu.Unlock()
	w.unlock()

	for _, file := range files {
		if file.first < cursor.segment {
			continue
		}
		if file.first > cursor.segment {
			cursor.segment, cursor.offset = file.first, 0
		}
		if cursor.offset >= file.size {
			continue
		}
		if more, err := w.segments.read(file, cursor, yield); err != nil || !more || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	for _, line := range pending {
		if line.Seq <= cursor.Seq {
			continue
		}
		cursor.Seq = line.Seq
		if !yield(line) {
			return nil
		}
	}
	return nil
}

// read reads a file from the cursor's offset to the size that it had. more is false if yield was.
func (s *segments) read(one segment, cursor *Cursor, yield func(Line) bool) (more bool, err error) {
	file, err := os.Open(s.name(one.first))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // it was the oldest, and deleted since
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(io.NewSectionReader(file, cursor.offset, one.size-cursor.offset), maxStoredLine)
	for {
		text, err := in.ReadSlice('\n')
		if len(text) == 0 || err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if err == nil || errors.Is(err, io.EOF) {
				return true, nil
			}
			return false, err
		}
		cursor.offset += int64(len(text))
		line, ok := parse(text[:len(text)-1])
		if !ok || line.Seq <= cursor.Seq {
			continue
		}
		cursor.Seq = line.Seq
		if !yield(line) {
			return false, nil
		}
	}
}

// LastEnded returns the newest incarnation in a worker's log whose process has ended; 0 if there is none.
func (s *Store) LastEnded(ctx context.Context, worker string) (incarnation int64, err error) {
	w := s.known(worker)
	if w == nil {
		return 0, nil
	}
	err = s.Read(ctx, worker, &Cursor{}, func(line Line) bool {
		if line.Incarnation > incarnation && !w.isLive(line.Incarnation) {
			incarnation = line.Incarnation
		}
		return true
	})
	return incarnation, err
}
