package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/need"
)

// ownPIDs makes a process the first one of a PID namespace: a container of its own as far as numbers of processes are
// concerned.
func ownPIDs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
}

// afterScript is a command that executes its arguments in a PID namespace after a script of sh.
func afterScript(script string) []string {
	return []string{"sh", "-c", "mount -t proc proc /proc && { " + script + ` ; } && exec "$@"`, "sh"}
}

// numberInNamespace is the number of a process in its own PID namespace.
func numberInNamespace(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if numbers, found := strings.CutPrefix(line, "NSpid:"); found {
			fields := strings.Fields(numbers)
			require.Greater(t, len(fields), 1, "it is in a namespace of its own")
			return fields[len(fields)-1]
		}
	}
	require.Fail(t, "no NSpid", "%s", status)
	return ""
}

// named returns the processes that execute a command with exactly these arguments.
func named(arguments ...string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && string(content) == strings.Join(arguments, "\x00")+"\x00" {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// Two containers with one host id: agents whose processes have the same numbers. One of them serves, and the other one
// is refused. When the container of the first is killed, the other follows, and kills nobody by a number that it has
// read in the state folder.
func TestOfTwoAgentsInPIDNamespacesOfTheirOwnOneServes(t *testing.T) {
	t.Parallel()
	probe := exec.Command("sh", append(afterScript("true")[1:], "true")...)
	probe.SysProcAttr = ownPIDs()
	need.RightTo(t, "make PID namespaces", probe.Run())
	for hostID, shared := range map[string]bool{"twin-shared": true, "twin-apart": false} { // the state folder
		t.Run(hostID, func(t *testing.T) {
			env := newEnv(t)
			second := []string{}
			refusal := "is in use by process 1 on "
			if !shared {
				second = []string{"--state-dir", filepath.Join(env.dir, "second")}
				refusal = `host id "twin-apart" is held by agent `
			}
			first := env.startAgentWith(ownPIDs(), afterScript("true"), hostID)
			holder := env.hostStatus(hostID, "the first agent serves", up)
			require.Contains(t, holder.Machine, "PID 1 on ")
			pool := env.startPool(echoSpec("twins", 1))
			worker := hostProcesses(hostID)
			require.Len(t, worker, 1)
			number := numberInNamespace(t, worker[0])

			refused := env.startAgentWith(ownPIDs(), afterScript("true"), hostID, second...)
			require.Error(t, refused.cmd.Wait())
			require.Equal(t, 1, refused.cmd.ProcessState.ExitCode())
			log, err := os.ReadFile(refused.log)
			require.NoError(t, err)
			require.Contains(t, string(log), refusal)
			if !shared {
				require.Contains(t, string(log), holder.Instance+" ("+holder.Machine+")", "the refusal names the holder")
			}
			require.Equal(t, holder.Epoch, env.hostStatus(hostID, "the first agent continues", up).Epoch)
			require.Equal(t, worker, hostProcesses(hostID), "its worker continues")

			first.kill() // and with it all processes of its namespace
			require.Eventually(t, func() bool { return len(hostProcesses(hostID)) == 0 }, waitTimeout, 50*time.Millisecond)
			// A daemon of the second namespace has the session whose number the first agent's worker had.
			daemon := []string{"sleep", fmt.Sprintf("%d%d", 1_000_000+os.Getpid(), map[bool]int{true: 1, false: 2}[shared])}
			script := "echo $((" + number + " - 1)) > /proc/sys/kernel/ns_last_pid && setsid sh -c '" +
				strings.Join(daemon, " ") + " & echo $$ > " + filepath.Join(env.dir, "leader") + "'"
			env.startAgentWith(ownPIDs(), afterScript(script), hostID, second...)
			next := env.hostStatus(hostID, "the second agent follows",
				func(s api.HostStatus) bool { return up(s) && s.Epoch > holder.Epoch })
			require.NotEqual(t, holder.Instance, next.Instance)
			env.waitLater(pool, "the worker serves again", 1)
			leader, err := os.ReadFile(filepath.Join(env.dir, "leader"))
			require.NoError(t, err)
			require.Equal(t, number+"\n", string(leader), "the numbers are the same")
			require.Len(t, named(daemon...), 1, "the daemon of the second namespace lives")
		})
	}
}
