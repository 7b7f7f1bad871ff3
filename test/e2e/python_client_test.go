package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/worker"
)

func TestThePythonClientCallsAPool(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("pyclient", "--listen", "127.0.0.1:0")
	s := pythonSpec("called", 2, "called.py")
	env.startPool(s)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	caller := exec.CommandContext(ctx, "python3", "-W", "error", filepath.Join("testdata", "caller.py"),
		filepath.Join(env.dir, "pyclient", worker.SocketName))
	caller.Env = append(os.Environ(), "PYTHONPATH="+s.Pool.Env["PYTHONPATH"])
	out, err := caller.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "all is well\n", string(out))
}
