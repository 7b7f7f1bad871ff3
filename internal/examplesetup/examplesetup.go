// Package examplesetup runs the examples in tests: a copy of an example's folder, with the npm packages that its lock file names
// beside it, and the workers of its pool.toml as processes of this machine. Users do the same by hand with `npm ci` and ctl.
package examplesetup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// installTimeout bounds the wait for npm, and for another test that installs.
const installTimeout = 5 * time.Minute

// Copy gives a test its own copy of an example's folder, which must hold a package.json and its package-lock.json, with the npm
// packages installed. Packages are fetched at the first use of a lock file and shared by all later copies; they are not to be written to.
// The test fails, with what to do about it, where npm is missing or fails.
func Copy(t testing.TB, example string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	cache, err := cacheFolder()
	require.NoError(t, err)
	into := t.TempDir()
	require.NoError(t, installer{folder: cache}.copy(ctx, example, into))
	return into
}

func cacheFolder() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder to keep the examples' packages in; set HOME or XDG_CACHE_HOME: %w", err)
	}
	return filepath.Join(user, "tempool", "examples"), nil
}

// copy makes into a working copy of example.
func (i installer) copy(ctx context.Context, example, into string) error {
	modules, err := i.ensure(ctx, example)
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
		case entry.Name() == modulesName: // the user's own, of whatever version
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
