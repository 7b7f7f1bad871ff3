package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/wire"
)

// logOf returns the log of p/0, or that of one incarnation.
func logOf(t *testing.T, s *Supervisor, worker string, incarnation int64) (lines []string) {
	t.Helper()
	require.NoError(t, s.Logs().Read(t.Context(), worker, &logs.Cursor{}, func(l logs.Line) bool {
		if incarnation == 0 || l.Incarnation == incarnation {
			lines = append(lines, l.Stream+": "+l.Text)
		}
		return true
	}))
	return lines
}

func TestTheLastLinesOfACrashAreInTheLogAfterTheNextStart(t *testing.T) {
	s := open(t)
	leave := filepath.Join(t.TempDir(), "leave")
	p := begin(t, s, sh(once(leave)+`echo working; printf 'bad \377 byte\nno end' >&2; exit 3`))
	require.NoError(t, os.WriteFile(leave, nil, 0o600))
	ends(t, p)
	starts(t, s, launch("p/0", 2, sh("echo again; exec sleep 1000")))
	ended, err := s.Logs().LastEnded(t.Context(), "p/0")
	require.NoError(t, err)
	require.EqualValues(t, 1, ended)
	lines := logOf(t, s, "p/0", ended)
	require.Len(t, lines, 5)
	require.Regexp(t, `^tempool: started as PID \d+$`, lines[0])
	require.Subset(t, lines, []string{"stdout: working", "stderr: bad \uFFFD byte", "stderr: no end"})
	require.Equal(t, "tempool: ended: exited with code 3", lines[4])
	eventually(t, func() bool { return slices.Contains(logOf(t, s, "p/0", 2), "stdout: again") },
		"the new incarnation logs, too")
}

// Whatever its caller is shown, an operator finds the traceback of a call's exception in the log. An error raised on
// purpose is the caller's.
func TestTheTracebackOfAnExceptionIsInTheLog(t *testing.T) {
	s := open(t)
	p := begin(t, s, python(t, "@tempool.method", "def bug(): raise KeyError('nobody\\ncatches this')", "@tempool.method",
		"def refuse(): raise tempool.Error('on purpose')"))
	for _, method := range []string{"refuse", "bug"} {
		var failure *wire.RemoteError
		require.ErrorAs(t, errorOf(p.Conn().Call(t.Context(), wire.Request{Method: method})), &failure)
		require.NotEmpty(t, failure.Traceback)
	}
	require.NoError(t, errorOf(p.Stop(t.Context(), time.Second)))
	log := strings.Join(logOf(t, s, "p/0", 1), "\n")
	require.Regexp(
		t, `(?m)^tempool: a call raised KeyError: 'nobody.*\ntempool: Traceback \(most recent call last\):\n(tempool: `+
			`.*\n)+tempool: KeyError: 'nobody`, log)
	require.NotContains(t, log, "on purpose")
	require.Empty(t, p.Logs(), "what the program did not write is none of its last words")
}

// The SDKs bound their errors. Another program may send one as large as any message, and text that looks like lines of
// the log's files.
func TestALongTracebackIsCutInTheLog(t *testing.T) {
	s := open(t)
	p := begin(t, s, runs("sleep", "1000"))
	long := strings.Repeat("x", 300_000)
	p.raised(&wire.RemoteError{Type: "Bug", Message: long, Traceback: "first\n" + long + "\n" +
		strings.Repeat("next\n", 5000)})
	require.NoError(t, errorOf(p.Stop(t.Context(), time.Second)))
	cut, frames := 0, 0
	for _, line := range logOf(t, s, "p/0", 1) {
		require.LessOrEqual(t, len(line), len("tempool: ")+maxLineBytes+len(truncatedMark))
		if strings.HasSuffix(line, truncatedMark) {
			cut++
		}
		if line == "tempool: next" {
			frames++
		}
	}
	require.Equal(t, 2, cut, "the message, and the second line of the traceback")
	require.Equal(t, maxTracebackLines-2, frames)
}

func TestAFloodOfOutputFillsNoDiskAndSlowsNoCall(t *testing.T) {
	const bound = 1 << 20
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, func(c *Config) { c.LogBytes, c.StateDir = bound, dir })
	quiet := begin(t, s, python(t))
	flood, err := s.Start(t.Context(),
		Launch{Worker: "flood/0", Incarnation: 1,
			Spec: sh("yes 'a line that nobody needs, as often as the machine can' & exec yes 1>&2")})
	require.NoError(t, err)
	var took []time.Duration
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until) || len(took) < 100; {
		began := time.Now()
		require.Equal(t, "hello", call(t, quiet, "echo", "hello"))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	flood.Kill("enough")
	ends(t, flood)
	t.Log("slowest call beside the flood:", took[len(took)-1])
	require.Less(t, took[len(took)*9/10], 2*time.Second, "of nine in ten calls: all stop while the machine does")
	lines := logOf(t, s, "flood/0", 0)
	require.Equal(t, "tempool: ended: killed: enough", lines[len(lines)-1])
	bytes := int64(0)
	files, err := filepath.Glob(filepath.Join(dir, logsName, "flood%2F0", "*"))
	require.NoError(t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		bytes += info.Size()
	}
	require.LessOrEqual(t, bytes, int64(bound))
}
