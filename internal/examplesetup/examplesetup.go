// Package examplesetup runs the examples in tests: it copies an example's folder, installs the npm packages of its lock
// file, and starts the workers of its pool.toml as processes. Users do the same with npm ci and tempool.
package examplesetup

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/installcache"
	"github.com/tempool/tempool/internal/need"
)

// installTimeout bounds npm and the wait for another test that installs.
const installTimeout = 5 * time.Minute

// Copy returns a temporary copy of an example's folder, which must have a package.json and a package-lock.json, with
// the npm packages installed. Copies with the same lock file share the packages, so a test must not change them. Copy
// skips the test if npm is missing.
func Copy(t testing.TB, example string) string {
	t.Helper()
	need.Program(t, "npm")
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	cache, err := installcache.UserPath("examples", "the examples' packages")
	require.NoError(t, err)
	into := t.TempDir()
	modules, err := ensurePackages(ctx, cache, example)
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(into, os.DirFS(example)))
	own := filepath.Join(into, modulesName)
	require.NoError(t, os.RemoveAll(own), "the user's own packages")
	require.NoError(t, os.Symlink(modules, own))
	return into
}
