// Package examplesetup runs the examples in tests: it copies an example's folder, installs the npm packages of its lock
// file, and starts the workers of its pool.toml as processes. Users do the same with npm ci and tempool.
package examplesetup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/installcache"
	"github.com/tempool/tempool/internal/need"
)

const (
	// installTimeout bounds npm and the wait for another test that installs.
	installTimeout = 5 * time.Minute
	// npmWaitDelay is how long a descendant of npm may keep npm's output open after npm has exited.
	npmWaitDelay = 5 * time.Second
	modulesName  = "node_modules"
)

// Copy returns a temporary copy of an example's folder, which must have a package.json and a package-lock.json, with
// the npm packages installed. Copies with the same lock file share the packages, so a test must not change them. Copy
// skips the test if npm is missing.
func Copy(t testing.TB, example string) string {
	t.Helper()
	need.Program(t, "npm")
	into := t.TempDir()
	modules := ensurePackages(t, example)
	require.NoError(t, os.CopyFS(into, os.DirFS(example)))
	own := filepath.Join(into, modulesName)
	require.NoError(t, os.RemoveAll(own), "the user's own packages")
	require.NoError(t, os.Symlink(modules, own))
	return into
}

// ensurePackages returns the node_modules for the files of the example that npm reads, and installs exactly the
// packages in its lock file into the cache folder first if they are missing, without running their scripts.
func ensurePackages(t testing.TB, example string) string {
	t.Helper()
	files, sum := map[string][]byte{}, sha256.New()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		data, err := os.ReadFile(filepath.Join(example, name))
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, ".") {
			continue
		}
		require.NoError(t, err)
		files[name] = data
		fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
	}
	cache, err := installcache.UserPath("examples", "the examples' packages")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	modules, err := installcache.Ensure(ctx, cache, hex.EncodeToString(sum.Sum(nil)), modulesName,
		func(ctx context.Context, scratch string) error {
			for name, data := range files {
				if err := os.WriteFile(filepath.Join(scratch, name), data, 0o644); err != nil {
					return err
				}
			}
			npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
			npm.Dir, npm.WaitDelay = scratch, npmWaitDelay
			output, err := npm.CombinedOutput()
			if err != nil {
				return fmt.Errorf("npm ci: %w; its output:\n%s", err, output)
			}
			return nil
		})
	require.NoError(t, err, "install the packages of %s", example)
	return modules
}
