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
)

const (
	scratchPrefix = "installing-"
	lockInterval  = 50 * time.Millisecond
)

// UserPath returns the path of a folder in Tempool's part of the user's cache folder; what it is for is in the error.
func UserPath(name, what string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder for %s; set HOME or XDG_CACHE_HOME: %w", what, err)
	}
	return filepath.Join(user, "tempool", name), nil
}

// Folder is the shared folder; it is created if missing.
type Folder struct {
	Path string
	// Waiting, if set, is called about every WaitingInterval while another process installs.
	Waiting         func(waited time.Duration)
	WaitingInterval time.Duration
}

// Ensure returns the path of file in the subfolder name and installs it first if it is missing. install fills an empty
// scratch folder, which becomes the subfolder if install succeeds and disappears if it fails. The subfolder is never
// incomplete, even if the process is killed.
func (f Folder) Ensure(ctx context.Context, name, file string,
	install func(ctx context.Context, scratch string) error) (string, error) {
	path := filepath.Join(f.Path, name, file)
	if found, err := exists(path); found || err != nil {
		return path, err
	}
	if err := os.MkdirAll(f.Path, 0o755); err != nil {
		return "", fmt.Errorf("create the cache folder: %w", err)
	}
	unlock, err := f.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if found, err := exists(path); found || err != nil {
		return path, err
	}
	return path, f.installLocked(ctx, name, install)
}

func (f Folder) installLocked(ctx context.Context, name string,
	install func(ctx context.Context, scratch string) error) error {
	if err := f.removeScratchLocked(); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(f.Path, scratchPrefix)
	if err != nil {
		return fmt.Errorf("create a folder for the installation: %w", err)
	}
	defer os.RemoveAll(scratch)
	if err := install(ctx, scratch); err != nil {
		return err
	}
	target := filepath.Join(f.Path, name)
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("remove an incomplete installation: %w", err)
	}
	if err := os.Rename(scratch, target); err != nil {
		return fmt.Errorf("move the installation into the cache folder: %w", err)
	}
	return nil
}

// removeScratchLocked removes the scratch folders of killed processes.
func (f Folder) removeScratchLocked() error {
	left, err := filepath.Glob(filepath.Join(f.Path, scratchPrefix+"*"))
	if err != nil {
		return fmt.Errorf("find leftover installations: %w", err)
	}
	for _, folder := range left {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("remove a leftover installation: %w", err)
		}
	}
	return nil
}

// lock waits until no other process installs into the folder. The system releases the lock of a process that dies.
func (f Folder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(f.Path, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the cache folder: %w", err)
	}
	retry := time.NewTicker(lockInterval)
	defer retry.Stop()
	began, reported := time.Now(), time.Now()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the cache folder %s: %w", f.Path, err), file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another process that installs into %s: %w", f.Path, context.Cause(ctx)),
				file.Close())
		case <-retry.C:
		}
		if f.Waiting != nil && time.Since(reported) >= f.WaitingInterval {
			reported = time.Now()
			f.Waiting(time.Since(began))
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
