package devserver

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/tempool/tempool/internal/installcache"
)

// Binary returns the path of a working temporal program: the one on the PATH if it has Temporal server 1.25 or newer,
// else the one in the user's cache folder. Binary installs that if missing, by a download or, if that fails, by a build
// with Go, which takes about three minutes. Concurrent processes install once and wait for each other.
//
// progress, if not nil, receives a sentence about each step of an installation. Without network and Go the error says
// what to do.
func Binary(ctx context.Context, progress func(sentence string)) (string, error) {
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
	folder, err := installcache.UserPath("temporal", "the Temporal server")
	if err != nil {
		return "", err
	}
	into := installer{folder: folder, progress: progress, download: download, build: build}
	return into.ensure(ctx)
}
