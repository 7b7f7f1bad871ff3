package logs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const waitTimeout = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *Store {
	t.Helper()
	return openSized(t, dir, MinWorkerBytes)
}

func openSized(t *testing.T, dir string, bytes int64) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, WorkerBytes: bytes, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// read returns all lines of a worker.
func read(t *testing.T, s *Store, worker string) (lines []Line) {
	t.Helper()
	require.NoError(t, s.Read(t.Context(), worker, &Cursor{}, func(l Line) bool {
		lines = append(lines, l)
		return true
	}))
	return lines
}

func texts(lines []Line) (all []string) {
	for _, l := range lines {
		all = append(all, l.Text)
	}
	return all
}

func TestALogHasTheLinesOfAllIncarnationsInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	s := open(t, dir)
	first := s.Output("p/0", 1)
	first.Add(Stdout, "one")
	second := s.Output("p/0", 2)
	second.Add(Stderr, "two")
	first.Add(Stdout, "three \u00e9 \ttab")
	first.Note("ended: exited with code 1")
	first.Close()
	first.Add(Stdout, "after the end")
	lines := read(t, s, "p/0")
	require.Equal(t, []string{"one", "two", "three \u00e9 \ttab", "ended: exited with code 1"}, texts(lines))
	require.Equal(t, Line{Seq: lines[1].Seq, At: lines[1].At, Incarnation: 2, Stream: Stderr, Text: "two"}, lines[1])
	require.WithinDuration(t, time.Now(), lines[0].At, waitTimeout)
	ended, err := s.LastEnded(t.Context(), "p/0")
	require.NoError(t, err)
	require.EqualValues(t, 1, ended, "incarnation 2 lives")
	second.Close()
	ended, err = s.LastEnded(t.Context(), "p/0")
	require.NoError(t, err)
	require.EqualValues(t, 2, ended)
	require.Empty(t, read(t, s, "p/1"))

	for _, name := range []string{dir, filepath.Join(dir, "p%2F0")} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, name)
	}
	files, err := filepath.Glob(filepath.Join(dir, "p%2F0", "*.log"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestAReopenedLogContinuesAfterACutLine(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	out := s.Output("p/0", 1)
	out.Add(Stdout, "before")
	out.Close()
	last := read(t, s, "p/0")[0].Seq
	s.Close()
	files, err := filepath.Glob(filepath.Join(dir, "p%2F0", "*.log"))
	require.NoError(t, err)
	file, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString("3 2026-01-01T00:0")
	require.NoError(t, err)
	require.NoError(t, file.Close())

	s = open(t, dir)
	out = s.Output("p/0", 2)
	out.Add(Stdout, "after")
	lines := read(t, s, "p/0")
	require.Equal(t, []string{"before", "after"}, texts(lines))
	require.Greater(t, lines[1].Seq, last)
	ended, err := s.LastEnded(t.Context(), "p/0")
	require.NoError(t, err)
	require.EqualValues(t, 1, ended, "of before")
	workers, err := s.Workers()
	require.NoError(t, err)
	require.Equal(t, []string{"p/0"}, workers)
	out.Close()
}

func TestALogIsBoundedAndSaysWhatWasDropped(t *testing.T) {
	dir := t.TempDir()
	const bound = 4 * MinWorkerBytes
	s := openSized(t, dir, bound)
	out := s.Output("p/0", 1)
	const lines = 100_000
	for i := range lines {
		out.Add(Stdout, fmt.Sprintf("%d %s", i, strings.Repeat("x", 100)))
	}
	out.Add(Stdout, "the last words")
	require.Len(t, out.Lines(), MaxLines)
	out.Close()
	kept := read(t, s, "p/0")
	bytes, _ := sizeOf(filepath.Join(dir, "p%2F0"))
	require.LessOrEqual(t, bytes, int64(bound))
	require.Greater(t, bytes, int64(bound/2))
	require.Equal(t, "the last words", kept[len(kept)-1].Text)
	for i, l := range kept[1:] {
		require.Greater(t, l.Seq, kept[i].Seq)
	}
	require.Positive(t, dropped(t, kept))
	require.GreaterOrEqual(t, s.Dropped(), int64(dropped(t, kept)))

	s.Close()
	s = openSized(t, dir, bound)
	out = s.Output("p/0", 2)
	out.Add(Stdout, "after")
	out.Close()
	again := read(t, s, "p/0")
	require.Greater(t, again[len(again)-1].Seq, kept[len(kept)-1].Seq, "also after numbers of lines that were dropped")
}

// dropped returns how many lines a log says were dropped.
func dropped(t *testing.T, log []Line) (lines int) {
	t.Helper()
	for _, l := range log {
		if l.Stream == Tempool {
			var n int
			_, err := fmt.Sscanf(l.Text, "%d lines dropped", &n)
			require.NoError(t, err)
			lines += n
		}
	}
	return lines
}

func TestACursorReadsOnlyWhatIsNew(t *testing.T) {
	s := open(t, t.TempDir())
	out := s.Output("p/0", 1)
	defer out.Close()
	var cursor Cursor
	const batches, size = 60, 500
	next := 0
	for range batches {
		changed := s.Changed()
		for i := range size {
			out.Add(Stdout, fmt.Sprint(next+i))
		}
		select {
		case <-changed:
		case <-time.After(waitTimeout):
			require.Fail(t, "no reader was notified")
		}
		require.NoError(t, s.Read(t.Context(), "p/0", &cursor, func(l Line) bool {
			require.Equal(t, fmt.Sprint(next), l.Text)
			next++
			return true
		}))
	}
	require.Equal(t, batches*size, next)
}

func TestLogsOfWorkersThatAreGoneAreDeleted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for i, age := range []time.Duration{Retention + time.Hour, time.Hour, 0, 0} {
		name := fmt.Sprintf("p/%d", i)
		out := s.Output(name, 1)
		out.Add(Stdout, strings.Repeat("x", 1000))
		if i < 3 {
			out.Close()
		} else {
			defer out.Close()
		}
		require.Len(t, read(t, s, name), 1)
		old := time.Now().Add(-age)
		entries, err := os.ReadDir(s.dir(name))
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(filepath.Join(s.dir(name), entries[0].Name()), old, old))
		require.NoError(t, os.Chtimes(s.dir(name), old, old))
	}
	s.prune()
	require.NoDirExists(t, s.dir("p/0"))
	require.DirExists(t, s.dir("p/1"))
	s.config.TotalBytes = 1 // all that may go goes, the oldest first
	s.prune()
	require.NoDirExists(t, s.dir("p/1"))
	require.NoDirExists(t, s.dir("p/2"))
	require.DirExists(t, s.dir("p/3"), "its process lives")
	out := s.Output("p/0", 2)
	out.Add(Stdout, "again")
	out.Close()
	require.Equal(t, []string{"again"}, texts(read(t, s, "p/0")))
}

func TestALogThatCannotBeWrittenIsReadableAndBlocksNobody(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	require.NoError(t, os.WriteFile(s.dir("p/0"), nil, 0o600)) // where the folder belongs
	out := s.Output("p/0", 1)
	const lines = 100_000 // more than may wait for the file: if Add waited for it, this would not end
	for i := range lines {
		out.Add(Stdout, fmt.Sprint(i))
	}
	require.NoError(t, os.Remove(s.dir("p/0")))
	var kept []Line
	require.Eventually(t, func() bool {
		kept = read(t, s, "p/0")
		return len(kept) > 1
	}, waitTimeout, 10*time.Millisecond)
	var dropped int
	_, err := fmt.Sscanf(kept[0].Text, "%d lines dropped", &dropped)
	require.NoError(t, err, kept[0].Text)
	require.Equal(t, lines, dropped+len(kept)-1)
	require.EqualValues(t, dropped, s.Dropped())
	require.Equal(t, fmt.Sprint(lines-1), kept[len(kept)-1].Text)
	out.Close()
}

func FuzzParse(f *testing.F) {
	f.Add("1 2026-01-01T00:00:00Z 1 stderr text")
	f.Add("1 2026-01-01T00:00:00.123456789Z 9 tempool a b  c")
	f.Fuzz(func(t *testing.T, text string) {
		line, ok := parse([]byte(text))
		if !ok {
			return
		}
		stored := line.appendTo(nil)
		again, ok := parse(stored[:len(stored)-1])
		require.True(t, ok)
		require.True(t, again.At.Equal(line.At))
		again.At = line.At
		require.Equal(t, line, again)
	})
}

func TestADiskThatDoesNotAnswerIsNotWaitedForLonger(t *testing.T) {
	s := open(t, t.TempDir())
	out := s.Output("p/0", 1)
	defer out.Close()
	out.Add(Stdout, "one")
	w := s.known("p/0")
	require.NoError(t, w.lock(t.Context())) // as a write that does not return
	defer w.unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Read(ctx, "p/0", &Cursor{}, func(Line) bool { return true }), context.DeadlineExceeded)
	out.Add(Stdout, "two")
}
