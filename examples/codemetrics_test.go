package examples_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/examples"
	"github.com/tempool/tempool/sdk"
	"github.com/tempool/tempool/spec"
)

func TestThePythonTestsOfCodemetricsPass(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "python3", "-B", "-W", "error", "-m", "unittest", "discover", "--start-directory",
		"codemetrics/tests")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "OK")
	require.NotContains(t, string(output), "Ran 0 tests")
}

func TestThePoolFileIsValid(t *testing.T) {
	s, err := spec.Load("codemetrics/pool.toml")
	require.NoError(t, err)
	require.Equal(t, "codemetrics", s.Pool.Name)
	require.Equal(t, 4, s.Pool.Size)
	require.Equal(t, spec.ProtocolFrames, s.Pool.Protocol)
}

func TestTheEmbeddedFilesAreComplete(t *testing.T) {
	for _, name := range []string{"codemetrics/pool.toml", "codemetrics/worker.py", "codemetrics/complexity.py"} {
		_, err := examples.Codemetrics.ReadFile(name)
		require.NoError(t, err)
	}
	_, err := sdk.Python.ReadFile("python/tempool/__init__.py")
	require.NoError(t, err)
}
