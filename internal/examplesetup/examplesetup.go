// Package examplesetup runs the examples in tests: it copies an example's folder, installs the npm packages of its lock
// file, and starts the workers of its pool.toml as processes. Users do the same with npm ci and tempool.
package examplesetup

import (
	"context"
	"fmt"
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
	require.NoError(t, copyExample(ctx, cache, example, into))
	return into
}

// copyExample makes the folder into a working copy of example.
func copyExample(ctx context.Context, cache, example, into string) error {
	modules, err := ensurePackages(ctx, cache, example)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(example)
	if err != nil {
		return fmt.Errorf("read the example: %w", err)
	}
	for _, entry := range entries {
		from, to := filepath.Join(example, entry.Name()), filepath.Join(into, entry.Name())
		switch {
		case entry.Name() == modulesName: // the user's own packages
			continue
		case entry.IsDir():
			err = os.CopyFS(to, os.DirFS(from))
		default:
			err = copyFile(from, to)
		}
		if err != nil {
			return fmt.Errorf("copy the example: %w", err)
		}
	}
	if err := os.Symlink(modules, filepath.Join(into, modulesName)); err != nil {
		return fmt.Errorf("link the example's packages: %w", err)
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
