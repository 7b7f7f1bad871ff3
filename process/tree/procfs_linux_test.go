package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParseStatAcceptsAnyCommandName(t *testing.T) {
	tail := " S 7 8 9 0 -1 4194560 100 200 0 0 150 50 30 20 20 0 3 0 987654 1000000 25 18446744073709551615 0\n"
	for _, command := range []string{"sleep", "a b", ") Z 1 1 1 (", "(x) y)", ""} {
		r, ok := parseStat([]byte("4242 (" + command + ")" + tail))
		require.True(t, ok, command)
		require.Equal(t, Identity{PID: 4242, Start: 987654}, r.Identity)
		require.Equal(t, []int{7, 8, 9}, []int{r.Parent, r.pgid, r.Session})
		require.False(t, r.Zombie)
		require.Equal(t, 3, r.threads)
		require.Equal(t, 2500*time.Millisecond, r.CPU)
		require.Equal(t, 25*pageSize, r.RSS)
	}
	zombie, ok := parseStat([]byte("1 (x)" + strings.Replace(tail, " S ", " Z ", 1)))
	require.True(t, ok)
	require.True(t, zombie.Zombie)
}

func TestExecutionStateSeesAnExecve(t *testing.T) {
	line := func(memory, code string) []byte {
		return []byte("4242 (a) 1 (b) R 7 8 9 0 -1 4194560 100 200 0 0 150 50 30 20 20 0 3 0 987654 " + memory +
			" 25 18446744073709551615 " + code + " 0 0\n")
	}
	executing := func(stat []byte) bool {
		_, executing := executionState(stat)
		return executing
	}
	require.True(t, executing(line("139264", "0")))
	require.False(t, executing(line("2920448", "94110350381056")), "it runs")
	require.False(t, executing(line("2920448", "1")), "it runs, as another account's")
	require.False(t, executing(line("0", "0")), "it ends")
	require.False(t, executing([]byte("4242 (a)")))
	require.False(t, executing(nil))
}

func TestScanFindsTheCookieOfAProcessInAnExecLoop(t *testing.T) {
	script := filepath.Join(t.TempDir(), "again")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o755))
	cmd := exec.Command(script)
	cmd.Env = []string{"PATH=/usr/bin:/bin", CookieEnv + "=execs"}
	start(t, cmd)
	mark(t, cmd.Process.Pid, NewMark())
	for range 100 {
		table, err := ScanTable(nil)
		require.NoError(t, err)
		require.Len(t, table.CookieHolders["execs"], 1)
	}
}

func TestAProcessWithAnEmptyEnvironmentHasNoCookie(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{}
	start(t, cmd)
	require.Eventually(t, func() bool {
		_, err := readCookie(cmd.Process.Pid)
		return err == nil
	}, waitTimeout, time.Millisecond, "the read must not wait for an environment that stays empty")
	cookie, err := readCookie(cmd.Process.Pid)
	require.NoError(t, err)
	require.Empty(t, cookie)
}

func TestOnlyAMarkedProcessIsOfATree(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{CookieEnv + "=copied"}
	start(t, cmd)
	key := Key{Cookie: "copied", Mark: NewMark()}
	require.NotEqual(t, key.Mark, NewMark())
	members := func() []*Entry {
		table, err := ScanTable(nil)
		require.NoError(t, err)
		return table.Members(key)
	}
	belongs := func() bool {
		return Belongs(cmd.Process.Pid, nil, nil, func(Identity) bool { return false })
	}
	require.Empty(t, members(), "a bystander")
	require.False(t, belongs(), "a bystander")
	mark(t, cmd.Process.Pid, key.Mark)
	require.Len(t, members(), 1, "by its mark")
	require.True(t, belongs(), "a worker that is in no list yet")
	mark(t, cmd.Process.Pid, 1000)
	require.True(t, belongs(), "a descendant of a worker that changed its mark")
	require.Len(t, members(), 1, "a descendant of a worker that changed its mark, by its cookie")
	key.Cookie = ""
	require.Empty(t, members())
}

func TestACookieInAForeignSessionProvesNothingWithoutMarks(t *testing.T) {
	rows := []*Entry{proc(high, 1, high, 100), proc(high+1, high, high, 101), proc(high+2, 1, high+2, 102),
		proc(high+3, 1, high+9, 103)}
	rows[1].cookie, rows[2].cookie, rows[3].cookie = "c", "c", "c"
	table := newTable(time.Now(), rows)
	require.False(t, table.ledByHolder(rows[1]), "somebody's shell leads the session")
	require.True(t, table.ledByHolder(rows[2]))
	require.True(t, table.ledByHolder(rows[3]), "the leader is gone")
}

func TestOnlyEscapedProcessesAreKilled(t *testing.T) {
	require.NoError(t, BecomeSubreaper())
	// adopt returns an orphan of this process, in a session of its own.
	adopt := func() Identity {
		file := filepath.Join(t.TempDir(), "pid")
		cmd := exec.Command("sh", "-c", "setsid sh -c 'echo $$ > "+file+"; exec sleep 1000' & ")
		require.NoError(t, cmd.Run())
		var id Identity
		require.Eventually(t, func() bool {
			data, err := os.ReadFile(file)
			pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
			if err != nil || pid == 0 {
				return false
			}
			e, err := ReadEntry(pid)
			if err != nil || e == nil || e.Parent != os.Getpid() {
				return false
			}
			id = e.Identity
			return true
		}, waitTimeout, time.Millisecond)
		t.Cleanup(func() {
			_ = Signal(id, syscall.SIGKILL)
			require.Eventually(t, func() bool { ReapOrphan(id); return !id.Exists() }, waitTimeout, time.Millisecond)
		})
		return id
	}
	child := exec.Command("sleep", "1000") // of other code in this program
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	other, found := Identify(child.Process.Pid)
	require.True(t, found)

	unmarked, living, owned, retired, lowered := adopt(), adopt(), adopt(), adopt(), adopt()
	kept, gone := NewMark(), NewMark()
	mark(t, living.PID, kept)
	mark(t, owned.PID, 1000)
	mark(t, retired.PID, gone)
	mark(t, lowered.PID, 1001)
	t.Cleanup(kept.Retire)
	gone.Retire()
	t.Cleanup(OwnTrees(func(e *Entry) bool { return e.Identity == owned }))
	killed := 0
	require.Eventually(t, func() bool { // the kernel's list of children may lack one while another ends
		n, err := KillEscaped()
		require.NoError(t, err)
		killed += n
		return killed >= 2
	}, waitTimeout, time.Millisecond)
	require.Equal(t, 2, killed)
	for id, lives := range map[Identity]bool{other: true, unmarked: true, living: true, owned: true, retired: false,
		lowered: false} {
		require.Equal(t, lives, id.Exists(), "%v of %v", id, []Identity{other, unmarked, living, owned, retired, lowered})
	}
}

// mark gives a process a mark.
func mark(t *testing.T, pid int, m Mark) {
	t.Helper()
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: uint64(m), Max: uint64(m)}, nil))
}

// start runs cmd until the end of the test.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, StartChild(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = WaitChild(cmd)
	})
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

func TestReadTableFindsThisProcess(t *testing.T) {
	table, err := ReadTable()
	require.NoError(t, err)
	own := table.entries[os.Getpid()]
	require.NotNil(t, own)
	require.Equal(t, os.Getppid(), own.Parent)
	require.Positive(t, own.RSS)
}

func TestNumbersOfAnUnnamedSpaceAreTrustedByNobody(t *testing.T) {
	require.True(t, SameNumberSpace(NumberSpace()))
	require.False(t, SameNumberSpace(""))

	proc := t.TempDir()
	require.Empty(t, numberSpace(proc))
	boot := filepath.Join(proc, "sys/kernel/random/boot_id")
	require.NoError(t, os.MkdirAll(filepath.Dir(boot), 0o700))
	spaces := map[string]bool{}
	for _, id := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(boot, []byte(id+"\n"), 0o600))
		spaces[numberSpace(proc)] = true
	}
	require.Len(t, spaces, 2, "a reboot is seen without the PID namespace, too")
}
