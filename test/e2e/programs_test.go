package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

func sharedProgram(env *testEnv) {
	t := env.t
	s, err := spec.Load(filepath.Join("..", "..", "examples", "programs", "pool.toml"))
	require.NoError(t, err)
	env.startPool(patient(s))
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	example := exec.CommandContext(ctx, "python3", "-B", "-W", "error", filepath.Join(s.Pool.Dir, "client.py"), "unix:"+
		filepath.Join(env.dir, "host", worker.SocketName))
	sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk", "python"))
	require.NoError(t, err)
	example.Env = append(os.Environ(), "PYTHONPATH="+sdk)
	require.Regexp(t, `(?s)^programs/\d trained a program of \d+ words.*(programs/\d ran it on \d+ pieces.*){3}`+
		`The session says: trained by programs/\d, \d+ pieces classified\.\n$`, outputOf(t, example))
}
