package devserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Binary returns the path of a working temporal program: the one on the PATH if it has Temporal server 1.25 or newer, else the one in cacheDir.
// Binary installs that if missing, by a download or, if that fails, by a build with Go, which takes about three minutes. Concurrent processes install
// once and wait for each other.
//
// An empty cacheDir is the folder tempool in the user's cache folder. progress, if not nil, receives a sentence every few seconds during an
// installation. Without network and Go the error says what to do.
func Binary(ctx context.Context, cacheDir string, progress func(sentence string)) (string, error) {
	if progress == nil {
		progress = func(string) {}
	}
	if path, err := exec.LookPath("temporal"); err == nil {
		if err := checkVersion(ctx, path); err == nil {
			return path, nil
		} else {
			progress(fmt.Sprintf("Ignoring %s on the PATH: %v.", path, err))
		}
	}
	if cacheDir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder for the Temporal server; set HOME or XDG_CACHE_HOME: %w", err)
		}
		cacheDir = filepath.Join(user, "tempool")
	}
	into := installer{folder: filepath.Join(cacheDir, "temporal"), progress: progress, interval: 5 * time.Second, download: download, build: build}
	return into.ensure(ctx)
}
