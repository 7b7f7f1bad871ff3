package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAStatLineIsReadWhateverTheCommandIsCalled(t *testing.T) {
	tail := " S 7 8 9 0 -1 4194560 100 200 0 0 150 50 30 20 20 0 3 0 987654 1000000 25 18446744073709551615 0\n"
	for _, command := range []string{"sleep", "a b", ") Z 1 1 1 (", "(x) y)", ""} {
		r, ok := parseStat([]byte("4242 (" + command + ")" + tail))
		require.True(t, ok, command)
		require.Equal(t, identity{PID: 4242, Start: 987654}, r.identity)
		require.Equal(t, []int{7, 8, 9}, []int{r.ppid, r.pgid, r.sid})
		require.False(t, r.zombie)
		require.Equal(t, 3, r.threads)
		require.Equal(t, 2500*time.Millisecond, r.cpu)
		require.Equal(t, 25*pageSize, r.rss)
	}
	zombie, ok := parseStat([]byte("1 (x)" + strings.Replace(tail, " S ", " Z ", 1)))
	require.True(t, ok)
	require.True(t, zombie.zombie)
}

func TestAProcessExecutesWhileItHasMemoryAndNoCode(t *testing.T) {
	line := func(memory, code string) []byte {
		return []byte("4242 (a) 1 (b) R 7 8 9 0 -1 4194560 100 200 0 0 150 50 30 20 20 0 3 0 987654 " + memory + " 25 18446744073709551615 " + code + " 0 0\n")
	}
	executing := func(stat []byte) bool {
		_, executing := memoryOf(stat)
		return executing
	}
	require.True(t, executing(line("139264", "0")))
	require.False(t, executing(line("2920448", "94110350381056")), "it runs")
	require.False(t, executing(line("2920448", "1")), "it runs, as another account's")
	require.False(t, executing(line("0", "0")), "it ends")
	require.False(t, executing([]byte("4242 (a)")))
	require.False(t, executing(nil))
}

func TestTheCookieOfAProcessThatAlwaysExecutesIsFound(t *testing.T) {
	script := filepath.Join(t.TempDir(), "again")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o755))
	p := begin(t, open(t), runs(script))
	for range 100 {
		table, err := scan(onlyRead)
		require.NoError(t, err)
		require.Len(t, table.bearers[p.Info().Cookie], 1)
	}
}

func TestWhoHasNoEnvironmentHoldsUpNoScan(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{}
	require.NoError(t, startChild(cmd))
	defer func() {
		_ = cmd.Process.Kill()
		_ = waitChild(cmd)
	}()
	eventually(t, func() bool { _, err := cookieOf(cmd.Process.Pid); return err == nil }, "it executes for ever")
	cookie, err := cookieOf(cmd.Process.Pid)
	require.NoError(t, err)
	require.Empty(t, cookie)
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("4242 (sleep) S 7 8 9 0 -1 4194560 100 200 0 0 150 50 30 20 20 0 3 0 987654 1000000 25 0 0\n"))
	f.Add([]byte(") ("))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r, ok := parseStat(line); ok {
			require.Contains(t, string(line), "(")
			require.NotNil(t, r)
		}
	})
}

func TestTheTableHoldsThisProcess(t *testing.T) {
	table, err := glance()
	require.NoError(t, err)
	own := table.rows[os.Getpid()]
	require.NotNil(t, own)
	require.Equal(t, os.Getppid(), own.ppid)
	require.Positive(t, own.rss)
}
