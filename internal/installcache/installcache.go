// Package installcache installs things into a folder that all processes of a user share: each thing once, even if many
// processes ask at the same time.
package installcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tempool/tempool/internal/sleep"
)

const (
	// scratchName is the folder of the installation that holds the lock.
	scratchName  = "installing"
	lockInterval = 50 * time.Millisecond
)

// UserPath returns the path of a folder in Tempool's part of the user's cache folder; what it is for is in the error.
func UserPath(name, what string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder for %s; set HOME or XDG_CACHE_HOME: %w", what, err)
	}
	return filepath.Join(user, "tempool", name), nil
}

// Ensure returns the path of file in the subfolder name of a shared folder, and installs it first if it is missing.
// install fills an empty scratch folder, which becomes the subfolder if install succeeds and disappears if it fails.
// The subfolder is never incomplete, even if the process is killed.
func Ensure(ctx context.Context, folder, name, file string,
	install func(ctx context.Context, scratch string) error) (string, error) {
	path := filepath.Join(folder, name, file)
	if found, err := exists(path); found || err != nil {
		return path, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("create the cache folder: %w", err)
	}
	unlock, err := lock(ctx, folder)
	if err != nil {
		return "", err
	}
	defer unlock()
	if found, err := exists(path); found || err != nil {
		return path, err
	}
	return path, installLocked(ctx, folder, name, install)
}

func installLocked(ctx context.Context, folder, name string,
	install func(ctx context.Context, scratch string) error) error {
	scratch, target := filepath.Join(folder, scratchName), filepath.Join(folder, name)
	defer os.RemoveAll(scratch)
	if err := os.RemoveAll(scratch); err != nil {
		return fmt.Errorf("remove what a killed process has left of its installation: %w", err)
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fmt.Errorf("create a folder for the installation: %w", err)
	}
	if err := install(ctx, scratch); err != nil {
		return err
	}
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("remove an incomplete installation: %w", err)
	}
	if err := os.Rename(scratch, target); err != nil {
		return fmt.Errorf("move the installation into the cache folder: %w", err)
	}
	return nil
}

// lock waits until no other process installs into the folder. The system releases the lock of a process that dies.
func lock(ctx context.Context, folder string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the cache folder: %w", err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = file.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("lock the cache folder %s: %w", folder, err), file.Close())
		case !sleep.For(ctx.Done(), lockInterval):
			return nil, errors.Join(fmt.Errorf("wait for another process that installs into %s: %w", folder,
				context.Cause(ctx)), file.Close())
		}
	}
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
