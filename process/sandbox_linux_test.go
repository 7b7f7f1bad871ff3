package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/spec"
)

// sandboxed returns the output of a script in a sandbox, and its process.
func sandboxed(t *testing.T, script string, change func(*spec.Spec)) (string, *Process) {
	t.Helper()
	sp := sh(script + "; echo end; exec /bin/sleep 1000")
	change(&sp)
	p := begin(t, open(t), sp)
	var text string
	eventually(t, func() bool {
		text = ""
		for _, line := range p.Logs() {
			text += line.Text + "\n"
		}
		return strings.Contains(text, "end\n")
	}, "no output")
	return text, p
}

func TestSandboxedFiles(t *testing.T) {
	dir := t.TempDir()
	read, write, other := filepath.Join(dir, "read"), filepath.Join(dir, "write"), filepath.Join(dir, "other")
	for _, d := range []string{read, write, other} {
		require.NoError(t, os.Mkdir(d, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(d, "f"), []byte(filepath.Base(d)), 0o644))
	}
	script := fmt.Sprintf(`cd %s
for d in read write other; do
  cat $d/f >/dev/null && echo $d is read
  (echo x >> $d/f) && echo $d is written; (: > $d/f) && echo $d is emptied
  (: > $d/new) && echo $d has new; rm -f $d/new
done 2>/dev/null`, dir)
	system := []string{"/bin", "/usr", "/lib", "/lib64", "/etc", "/dev/null"}
	text, _ := sandboxed(t, script, func(sp *spec.Spec) {
		sp.Sandbox.Read, sp.Sandbox.Write = append(system, read), []string{write}
	})
	require.Equal(t, "read is read\nwrite is read\nwrite is written\nwrite is emptied\nwrite has new\nend\n", text)

	text, _ = sandboxed(t, script, func(sp *spec.Spec) { sp.Sandbox.Write = []string{write} })
	require.NotContains(t, text, "other is written")
	require.NotContains(t, text, "other is emptied")
	require.Contains(t, text, "other is read")
	require.Contains(t, text, "write has new")

	sp := sh("exec sleep 1000")
	sp.Sandbox.Read = []string{"/no/such/path"}
	require.ErrorContains(t, errorOf(open(t).Start(t.Context(), launch("p/0", 1, sp))), "sandbox.read: open /no/such/path")
}

func TestASandboxWithoutNetworkHasItsOwnLoopbackOnly(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	script := fmt.Sprintf(`python3 -c '
import socket
try: socket.create_connection(("127.0.0.1", %d), 5); print("the host is reached")
except OSError: pass
s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname(), 5); print("own loopback")
print([name for _, name in socket.if_nameindex()], flush=True)
s = socket.create_server(("127.0.0.1", 4999))
import os
if os.fork(): os._exit(0)
os.close(0); os.close(1); os.close(2)
while True: s.accept()
'`, listener.Addr().(*net.TCPAddr).Port)
	text, p := sandboxed(t, script, func(sp *spec.Spec) { sp.Sandbox.Network = spec.NetworkNone })
	require.Equal(t, "own loopback\n['lo']\nend\n", text)
	p.spec.Health.Command = []string{"python3", "-c", `import socket; socket.create_connection(("127.0.0.1", 4999), 5)`}
	require.NoError(t, p.Probe(t.Context()), "an exec probe runs in the worker's network")
}

func TestAPrivateTmpIsTheWorkersOwn(t *testing.T) {
	try := exec.Command("true")
	try.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		try.SysProcAttr.Unshareflags |= syscall.CLONE_NEWUSER
	}
	need.RightTo(t, "have mounts of its own", try.Run())
	seen, err := os.CreateTemp("/tmp", "contain")
	require.NoError(t, err)
	defer os.Remove(seen.Name())
	dir, err := os.MkdirTemp("/tmp", "contain")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	for _, user := range []string{"", "nobody"} {
		require.NoError(t, os.Chmod(dir, 0o777))
		text, p := sandboxed(t, `[ -e `+seen.Name()+
			` ] && echo visible; echo x > /tmp/mine && echo written; pwd; echo kept > $PWD/f; `+
			`ls -ld $(dirname $TEMPOOL_SOCKET) >/dev/null && echo socket; touch $TEMPOOL_SOCKET.x && echo ok`,
			func(sp *spec.Spec) {
				sp.Sandbox.PrivateTmp, sp.Pool.Dir, sp.Pool.User = true, dir, user
			})
		require.Equal(t, "written\n"+dir+"\nsocket\nok\nend\n", text)
		require.NoFileExists(t, "/tmp/mine")
		require.Equal(t, "kept\n", textOf(t, filepath.Join(dir, "f")))
		p.spec.Health.Command = []string{"sh", "-c", "[ -e /tmp/mine ] && [ $PWD = " + dir + " ]"}
		require.NoError(t, p.Probe(t.Context()), "an exec probe sees the worker's /tmp")
		require.NoError(t, os.Remove(filepath.Join(dir, "f")))
	}
}
