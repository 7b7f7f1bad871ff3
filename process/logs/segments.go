package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// segmentsPerLog is into how many files a worker's log is cut; the oldest is deleted for a new one.
const segmentsPerLog = 4

// segment is one file of a log. Its name is the sequence number of its first line.
type segment struct {
	first int64
	size  int64
}

// segments are the files of a worker's log. They are not safe for concurrent use.
type segments struct {
	dir    string
	most   int64 // bytes of all files together
	loaded bool
	list   []segment // oldest first
	file   *os.File  // the newest of them, open for writing; nil until something is written
}

func (s *segments) name(first int64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%019d.log", first))
}

// load finds the files of earlier agents, once. A log that is not there has none.
func (s *segments) load() error {
	if s.loaded {
		return nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.list = nil
	for _, entry := range entries {
		number, ours := strings.CutSuffix(entry.Name(), ".log")
		first, err := strconv.ParseInt(number, 10, 64)
		info, failed := entry.Info()
		if ours && err == nil && failed == nil && entry.Type().IsRegular() {
			s.list = append(s.list, segment{first, info.Size()})
		}
	}
	slices.SortFunc(s.list, func(a, b segment) int { return int(a.first - b.first) })
	s.loaded = true
	return nil
}

// next is a sequence number above all that are in the files: a line has at least one byte, and those that were dropped
// did not come faster than one in a microsecond (unless the clock was set back). A log that was deleted does not
// restart for those who follow it.
func (s *segments) next() int64 {
	next := time.Now().UnixMicro()
	if n := len(s.list); n > 0 {
		next = max(next, s.list[n-1].first+s.list[n-1].size+1)
	}
	return next
}

// write appends whole lines, the first of which has the sequence number first, to segments that are loaded. After an
// error, nothing of them is in the log.
func (s *segments) write(first int64, lines []byte) error {
	part := s.most / segmentsPerLog
	if n := len(s.list); s.file == nil && n > 0 && s.list[n-1].size+int64(len(lines)) <= part {
		if err := s.reopen(&s.list[n-1]); err != nil {
			return err
		}
	}
	if s.file == nil || s.list[len(s.list)-1].size+int64(len(lines)) > part {
		if err := s.begin(first, part); err != nil {
			return err
		}
	}
	newest := &s.list[len(s.list)-1]
	if n, err := s.file.Write(lines); err != nil {
		if n > 0 {
			err = errors.Join(err, s.file.Truncate(newest.size))
		}
		s.close() // perhaps the folder was deleted, or the file system remounted
		s.loaded = false
		return err
	}
	newest.size += int64(len(lines))
	return nil
}

// reopen opens the newest file of an earlier agent. A crash may have cut its last line.
func (s *segments) reopen(newest *segment) error {
	file, err := os.OpenFile(s.name(newest.first), os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if newest.size > 0 {
		_, err = file.ReadAt(last, newest.size-1)
	}
	if err == nil && last[0] != '\n' {
		if _, err = file.Write([]byte{'\n'}); err == nil {
			newest.size++
		}
	}
	if err != nil {
		file.Close()
		return err
	}
	s.file = file
	return nil
}

// begin deletes the oldest files, so that there is room for a whole one, and begins that.
func (s *segments) begin(first, part int64) error {
	s.close()
	for len(s.list) > 0 && s.bytes()+part > s.most {
		if err := os.Remove(s.name(s.list[0].first)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.list = s.list[1:]
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(s.name(first), os.O_WRONLY|os.O_CREATE|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	s.file, s.list = file, append(s.list, segment{first: first})
	return nil
}

func (s *segments) bytes() (total int64) {
	for _, one := range s.list {
		total += one.size
	}
	return total
}

func (s *segments) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
