package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
)

func TestThePythonTestsOfTheExamplesPass(t *testing.T) {
	for _, example := range []string{"codemetrics", "programs"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, "python3", "-B", "-W", "error", "-m", "unittest", "discover",
			"--start-directory", "tests")
		command.Dir = example
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", example, output)
		require.Contains(t, string(output), "OK", example)
		require.NotContains(t, string(output), "Ran 0 tests", example)
	}
}

func TestThePythonProgramsAndTheirSDKAreTyped(t *testing.T) {
	need.Program(t, "mypy")
	library, err := filepath.Abs("../sdk/python")
	require.NoError(t, err)
	programs, err := filepath.Glob("*/*.py")
	require.NoError(t, err)
	files := map[string][]string{library: {"tempool"}} // by folder: two programs may have a module of the same name
	for _, file := range programs {
		folder, name := filepath.Split(file)
		files[folder] = append(files[folder], name)
	}
	require.Greater(t, len(files), 4)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	cache = filepath.Join(cache, "tempool", "mypy")
	for folder, names := range files {
		// libraries of the programs may have no types
		command := exec.CommandContext(t.Context(), "mypy", append([]string{"--strict", "--ignore-missing-imports",
			"--follow-imports", "silent", "--cache-dir", cache}, names...)...)
		command.Dir, command.Env = folder, append(os.Environ(), "MYPYPATH="+library)
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", folder, output)
	}
}
