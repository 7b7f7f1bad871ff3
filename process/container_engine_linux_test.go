package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

// fakeEngine is a client of an engine that runs a program of the host in a session of its own, as containers are, and whose other commands hang
// until the file done is in the folder.
const fakeEngine = `#!/bin/sh
folder=$(dirname "$0")
if [ "$1" != run ]; then
	echo "$1" >> "$folder/asked"
	while [ ! -e "$folder/done" ]; do sleep 0.01; done
	exit 0
fi
while [ "$1" != image ]; do shift; done
shift
exec 5<&0
setsid "$@" <&5 &
wait
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
	sp.Pool.Image, sp.Pool.Protocol, sp.Pool.Command, sp.Pool.Env = "image", spec.ProtocolJSONRPC, []string{"sh", "-c", script}, nil
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
			select {
			case <-p.Done():
				require.Fail(t, "the end must wait for the removal of the container")
			default:
			}
			require.NoError(t, os.WriteFile(filepath.Join(folder, "done"), nil, 0o600))
			require.True(t, ends(t, p).Killed)
		})
	}
}

func TestTheEngineIsNoLongerAskedToStopAContainerThatIsKilled(t *testing.T) {
	folder := setUpFakeEngine(t)
	p := begin(t, open(t), ofFakeEngine("exec sleep 1000"))
	p.requestStop(patience)
	asked := func(commands string) func() bool {
		return func() bool {
			text, _ := os.ReadFile(filepath.Join(folder, "asked"))
			return string(text) == commands
		}
	}
	eventually(t, asked("kill\n"), "the engine must be asked to stop the container")
	p.Kill("enough")
	eventually(t, asked("kill\nrm\n"), "a hanging command must not delay the removal")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "done"), nil, 0o600))
	require.True(t, ends(t, p).Killed)
}
