package dev

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestTheGoCommandIsRecognizedByName(t *testing.T) {
	require.False(t, isGo(os.Getpid()))
	require.False(t, isGo(-1))
	sleeper, err := exec.LookPath("sleep")
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "go")
	require.NoError(t, os.Symlink(sleeper, link))
	command := exec.Command(link, "60")
	require.NoError(t, command.Start())
	defer func() {
		require.NoError(t, command.Process.Kill())
		require.Error(t, command.Wait(), "it was killed")
	}()
	require.Eventually(t, func() bool { return isGo(command.Process.Pid) }, time.Minute, 10*time.Millisecond)
}
