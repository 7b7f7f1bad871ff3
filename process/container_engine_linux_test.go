package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// fakeEngine is a client of an engine that runs a program of the host in a session of its own, as containers are, and
// whose other commands hang until the file done is in the folder. Its client ends two seconds after the program.
const fakeEngine = `#!/bin/sh
folder=$(dirname "$0")
env > "$folder/environment-of-$1"
if [ "$1" != run ]; then
	while [ ! -e "$folder/done" ]; do sleep 0.01; done
	exit 0
fi
while [ "$1" != image ]; do
	case "$1" in
	--env-file) cp -p "$2" "$folder/variables" ;;
	--pidfile) pidfile=$2 ;;
	esac
	shift
done
shift
exec 5<&0
setsid sh -c 'printf $$ > "$0"; exec "$@"' "$pidfile" "$@" <&5 &
exec >&-
wait $!
code=$?
sleep 2
exit $code
`

// setUpFakeEngine returns the folder of the engine.
func setUpFakeEngine(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, engineName), []byte(fakeEngine), 0o755))
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	return folder
}

// ofFakeEngine is a worker that says nothing.
func ofFakeEngine(script string) spec.Spec {
	sp := containerSpec()
	sp.Pool.Image, sp.Pool.Protocol, sp.Pool.Command, sp.Pool.Env = "image", spec.ProtocolJSONRPC, []string{"sh", "-c",
		script}, nil
	return sp
}

func TestAKilledContainerDoesNotWaitForItsEngine(t *testing.T) {
	for name, end := range map[string]func(*Process){
		"killed":              func(p *Process) { p.Kill("enough") },
		"the grace has ended": func(p *Process) { p.requestStop(1) },
	} {
		t.Run(name, func(t *testing.T) {
			folder := setUpFakeEngine(t)
			pidFile := filepath.Join(t.TempDir(), "pid")
			p := begin(t, open(t), ofFakeEngine("echo $$ > "+pidFile+"; exec sleep 1000"))
			worker := pidIn(t, pidFile)
			end(p)
			eventually(t, func() bool { return !lives(t, worker) }, "the worker must be killed while the engine hangs")
			require.False(t, p.HasEnded(), "the end must wait for the removal of the container")
			require.ErrorIs(t, p.Probe(t.Context()), ErrUnavailable, "its health is that of no process any more")
			require.NoError(t, os.WriteFile(filepath.Join(folder, "done"), nil, 0o600))
			require.True(t, ends(t, p).Killed)
		})
	}
}

// The engine's client cleans up before it ends, which takes seconds on a busy machine. It may not pass signals on yet.
func TestAContainerThatCrashesOrStopsHasItsExitCode(t *testing.T) {
	folder := setUpFakeEngine(t)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "done"), nil, 0o600))
	p := begin(t, open(t), ofFakeEngine("read line; exit 3"))
	require.Error(t, errorOf(p.Conn().Call(t.Context(), wire.Request{Method: "crash"})))
	exit := ends(t, p)
	require.Equal(t, 3, exit.Code, exit.Reason)
	require.True(t, exit.Failed() && !exit.Killed, exit.Reason)

	pidFile := filepath.Join(t.TempDir(), "pid")
	p = begin(t, open(t), ofFakeEngine("trap 'exit 4' TERM; echo $$ > "+pidFile+"; sleep 1000 & wait"))
	pidIn(t, pidFile)
	exit = stops(t, p)
	require.Equal(t, 4, exit.Code, exit.Reason)
	require.True(t, exit.Interrupted, exit.Reason)
}

func TestTheVariablesOfAContainerAreNotItsEngines(t *testing.T) {
	folder := setUpFakeEngine(t)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "done"), nil, 0o600))
	t.Setenv("STORAGE_DRIVER", "of the agent")
	t.Setenv("NOTIFY_SOCKET", "/of/the/agent")
	t.Setenv(EnvIncarnation, "of the agent")
	pidFile := filepath.Join(t.TempDir(), "pid")
	sp := ofFakeEngine("echo $$ > " + pidFile + "; exec sleep 1000")
	sp.Pool.Env = map[string]string{"XDG_DATA_HOME": "/of/the/worker", "CONTAINER_HOST": "of the worker", "EMPTY": "",
		"SHARP": " # ' \""}
	dir := t.TempDir()
	s := open(t, func(c *Config) { c.StateDir = dir })
	p := begin(t, s, sp)
	pidIn(t, pidFile)
	require.NotContains(t, textOf(t, fmt.Sprintf("/proc/%d/cmdline", p.Info().PID)), "of the worker")
	p.requestStop(waitTimeout)
	p.Kill("enough")
	ends(t, p)

	lines := func(name string) []string {
		return strings.Split(strings.TrimSpace(textOf(t, filepath.Join(folder, name))), "\n")
	}
	for _, command := range []string{"run", "rm"} {
		environ := lines("environment-of-" + command)
		require.Contains(t, environ, "STORAGE_DRIVER=of the agent", command)
		require.NotContains(t, strings.Join(environ, " "), "of/the/worker", command)
		require.NotContains(t, strings.Join(environ, " "), "NOTIFY_SOCKET", command)
		require.Equal(t, command == "run", slices.Contains(environ, EnvIncarnation+"="+p.Info().Cookie),
			"the client must be found by its cookie")
		require.NotContains(t, environ, EnvIncarnation+"=of the agent")
	}
	require.ElementsMatch(t, []string{
		"XDG_DATA_HOME=/of/the/worker", "CONTAINER_HOST=of the worker", "EMPTY=", "SHARP= # ' \"", EnvWorker + "=p/0",
		EnvIncarnation + "=" + p.Info().Cookie,
	}, lines("variables"))
	info, err := os.Stat(filepath.Join(folder, "variables"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := filepath.Glob(filepath.Join(dir, variablesPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAVariableThatAFileCannotHoldIsRefused(t *testing.T) {
	setUpFakeEngine(t)
	s := open(t)
	for i, env := range []map[string]string{{"A": "two\nlines"}, {"#A": "1"}, {" A": "1"},
		{"A": strings.Repeat("x", maxVariable)}} {
		sp := ofFakeEngine("exec sleep 1000")
		sp.Pool.Env = env
		_, err := s.Start(t.Context(), launch("p/0", int64(i+1), sp))
		require.ErrorContains(t, err, "cannot be passed to a container", "%.20v", env)
	}
}
