package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
)

// withoutDescriptors runs f while this program can open nothing.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3 // those are in use
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	f()
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

func TestAStartWithoutDescriptorsFailsAndLaterOnesWork(t *testing.T) {
	s := open(t)
	withoutDescriptors(t, func() {
		err := startFails(t, s, launch("p/0", 1, runs("sleep", "1000")))
		require.ErrorIs(t, err, ErrExhausted)
		require.ErrorIs(t, err, syscall.EMFILE)
	})
	begin(t, s, runs("sleep", "1000"))
}

func TestAMessageLongerThanItsPipeIsWrittenWithoutDescriptors(t *testing.T) {
	p := begin(t, open(t), jsonrpc())
	withoutDescriptors(t, func() {
		call(t, p, "echo", `{"text": "`+strings.Repeat("x", 8<<20)+`"}`)
	})
}

func TestNoSocketDirectoryIsLeftThatTheAgentMayNotGiveAway(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := open(t)
	allocated := background(func() error {
		runtime.LockOSThread() // the thread, which has less rights, ends with the goroutine
		header, rights := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		err := unix.Capget(&header, &rights[0])
		rights[0].Effective &^= 1 << unix.CAP_CHOWN
		err = errors.Join(err, unix.Capset(&header, &rights[0]))
		if err == nil {
			_, err = s.allocateAddress(&launcher.Credentials{UID: uint32(os.Getuid() + 1), GID: uint32(os.Getgid())})
		}
		return err
	})
	require.ErrorContains(t, await(t, allocated), "give the directory of the program's socket to its user")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, s.ports.inUse)
}

func TestATreeThatCannotBeReadDoesNotCountAsGone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := begin(t, open(t), sh(`setsid sh -c 'echo $$ > `+file+`; exec sleep 1000' & exec sleep 1000`))
	grandchild := pidIn(t, file)
	withoutDescriptors(t, func() {
		p.Kill("the host has run out of descriptors")
		<-p.exited
		require.False(t, p.HasEnded(), "done before the tree could be read")
	})
	exit := ends(t, p)
	require.True(t, exit.Killed)
	require.False(t, lives(t, grandchild))
	entries, err := os.ReadDir(filepath.Join(p.supervisor.state.path, recordsName))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestAFailedForkLeavesNothingAndLaterOnesWork(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{"no process left": syscall.EAGAIN,
		"no memory left": syscall.ENOMEM} {
		for limited, files := range map[string]int{"by the launcher": 100, "directly": 0} {
			t.Run(name+" "+limited, func(t *testing.T) {
				fs, home := fakeCgroupFS(t, "memory")
				left := 3
				s := open(t, func(c *Config) {
					c.cgroupFS = func() (limits.CgroupFS, error) { return fs, nil }
					c.fork = func(cmd *exec.Cmd) error {
						if cmd.Args[len(cmd.Args)-1] == "true" || left == 0 { // probes are not what is tried here
							return tree.StartChild(cmd)
						}
						left--
						return os.NewSyscallError("fork/exec", errno)
					}
				})
				sp := runs("sleep", "1000")
				sp.Limits.OpenFiles, sp.Limits.Memory = files, 64<<20
				before := openFiles(t)
				for incarnation := range int64(3) {
					require.ErrorIs(t, startFails(t, s, launch("p/0", incarnation+1, sp),
						"this host is out of resources for another process"), errno)
				}
				eventually(t, func() bool { return openFiles(t) <= before }, "descriptors stay open")
				entries, err := os.ReadDir(filepath.Join(s.state.path, recordsName))
				require.NoError(t, err)
				require.Empty(t, entries, "records")
				groups, err := filepath.Glob(filepath.Join(home, limits.WorkersPrefix+"*", "p.*"))
				require.NoError(t, err)
				require.Empty(t, groups, "control groups")
				starts(t, s, launch("p/0", 4, sp))
			})
		}
	}
}

func TestAStartThatCannotBeRecordedFailsAndLaterOnesWork(t *testing.T) {
	s, sp := open(t), runs("sleep", "1000") // which has a socket directory, too
	for i, name := range []string{recordsName, socketsName} {
		dir, incarnation := filepath.Join(s.state.path, name), int64(2*i+1)
		require.NoError(t, os.Rename(dir, dir+".away")) // as with a disk that is read-only: it says nothing about the program
		require.ErrorIs(t, startFails(t, s, launch("p/0", incarnation, sp), "out of resources", dir), ErrExhausted)
		require.Empty(t, cookieHolders(t, s.state.id), "a process without a record does not run")
		require.NoError(t, os.Rename(dir+".away", dir))
		starts(t, s, launch("p/0", incarnation+1, sp))
	}
}
