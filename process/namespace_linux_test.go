package process

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process/tree"
)

// inPIDNamespace makes a command that runs a script of sh as the first process of a PID namespace. "$@" are the
// arguments.
func inPIDNamespace(script string, args ...string) *exec.Cmd {
	cmd := exec.Command("sh", append([]string{"-c", "mount -t proc proc /proc && " + script, "sh"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	return cmd
}

// A supervisor that shares only the state directory with the one before sees none of its processes, or others under
// their numbers.
func TestProcessesAreNotTakenOverFromAnotherPIDNamespace(t *testing.T) {
	need.RightTo(t, "make PID namespaces", inPIDNamespace("exit 0").Run())
	dir := shortDir(t)
	agent := keepingAgent{Dir: dir, Spec: sh("sleep 1000"), NoCgroups: true} // one could be killed by its path
	id := handOverBy(t, agent)
	cmd := inPIDNamespace(`"$@"; exit 1`, os.Args[0])
	in, out := startKeepingAgent(t, cmd, agent)
	defer in.Close()
	defer func() {
		_ = cmd.Process.Kill() // and with it the namespace
		_ = tree.WaitChild(cmd)
	}()
	require.True(t, bufio.NewScanner(out).Scan(), "it has a worker of its own")
	gone(t, id, "the keeper has killed the worker that it could not give")
	keeperGone(t, dir, "the keeper is left over")
}
