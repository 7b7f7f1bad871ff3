package process

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

func TestWithoutDescriptorsAStartFailsClearlyAndLaterOnesWork(t *testing.T) {
	s := open(t)
	withoutDescriptors(t, func() {
		_, err := s.Start(t.Context(), launch("p/0", 1, runs("sleep", "1000")))
		require.ErrorIs(t, err, ErrStartFailed)
		require.ErrorIs(t, err, syscall.EMFILE)
	})
	begin(t, s, runs("sleep", "1000"))
}

func TestATreeIsNotTakenForGoneWhenItCannotBeRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := begin(t, open(t), sh(`setsid sh -c 'echo $$ > `+file+`; exec sleep 1000' & exec sleep 1000`))
	grandchild := pidIn(t, file)
	withoutDescriptors(t, func() {
		p.Kill("the host has run out of descriptors")
		<-p.exited
		select {
		case <-p.Done():
			require.Fail(t, "the end was told before the tree could be looked at")
		default:
		}
	})
	exit := ends(t, p)
	require.True(t, exit.Killed)
	require.False(t, lives(t, grandchild))
	entries, err := os.ReadDir(filepath.Join(p.supervisor.folder.path, recordsName))
	require.NoError(t, err)
	require.Empty(t, entries)
}
