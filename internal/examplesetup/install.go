package examplesetup

import (
	"bytes"
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
	"syscall"
	"time"
)

const (
	modulesName   = "node_modules"
	scratchPrefix = "installing-"
	lockPause     = 50 * time.Millisecond
	// npmWaitDelay is how long a descendant of npm may hold its output open once npm has ended.
	npmWaitDelay = 5 * time.Second
)

// npmFiles are what npm is given of an example.
var npmFiles = []string{"package.json", "package-lock.json", ".npmrc"}

// installer keeps packages in a folder: <folder>/<key>/node_modules, next to a lock. A <key> that is there is complete, since it
// gets its name when npm is done.
type installer struct{ folder string }

// ensure returns the node_modules that belong to the example's lock file, installing them if need be.
func (i installer) ensure(ctx context.Context, example string) (string, error) {
	files, key, err := readNPMFiles(example)
	if err != nil {
		return "", err
	}
	modules := filepath.Join(i.folder, key, modulesName)
	if found, err := exists(modules); found || err != nil {
		return modules, err
	}
	if err := os.MkdirAll(i.folder, 0o755); err != nil {
		return "", fmt.Errorf("make a folder to keep the examples' packages in: %w", err)
	}
	unlock, err := i.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if found, err := exists(modules); found || err != nil {
		return modules, err
	}
	return modules, i.install(ctx, example, files, key)
}

// install must hold the lock.
func (i installer) install(ctx context.Context, example string, files map[string][]byte, key string) error {
	if err := i.sweep(); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(i.folder, scratchPrefix)
	if err != nil {
		return fmt.Errorf("make a folder to install the packages of %s in: %w", example, err)
	}
	defer os.RemoveAll(scratch)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(scratch, name), data, 0o644); err != nil {
			return fmt.Errorf("prepare the packages of %s: %w", example, err)
		}
	}
	if err := npmCI(ctx, scratch); err != nil {
		return fmt.Errorf("install the packages of %s: %w", example, err)
	}
	kept := filepath.Join(i.folder, key)
	if err := os.RemoveAll(kept); err != nil { // what is there has lost its node_modules
		return fmt.Errorf("remove broken packages of %s: %w", example, err)
	}
	if err := os.Rename(scratch, kept); err != nil {
		return fmt.Errorf("keep the packages of %s: %w", example, err)
	}
	return nil
}

// npmCI installs exactly what the lock file in dir names, running none of the packages' own code.
func npmCI(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("there is no npm on the PATH: install Node.js 20 or newer, which brings it (https://nodejs.org): %w", err)
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.WaitDelay = dir, npmWaitDelay
	output, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("npm ci: %w; it said:\n%s", err, bytes.TrimSpace(output))
}

// readNPMFiles reads what npm needs, and a key that changes whenever any of it does.
func readNPMFiles(example string) (files map[string][]byte, key string, err error) {
	files = make(map[string][]byte)
	sum := sha256.New()
	for _, name := range npmFiles {
		data, err := os.ReadFile(filepath.Join(example, name))
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, ".") {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("read what the example needs from npm: %w", err)
		}
		files[name] = data
		fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
	}
	return files, hex.EncodeToString(sum.Sum(nil)), nil
}

// sweep removes what an installer that was killed has left. It must hold the lock, so no other is at work.
func (i installer) sweep() error {
	left, err := filepath.Glob(filepath.Join(i.folder, scratchPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for left-over installations: %w", err)
	}
	for _, folder := range left {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("remove a left-over installation: %w", err)
		}
	}
	return nil
}

// lock waits until no other process installs into the folder. The system drops the lock of a process that dies.
func (i installer) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(i.folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the examples' packages: %w", err)
	}
	pause := time.NewTicker(lockPause)
	defer pause.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the folder of the examples' packages %s: %w", i.folder, err), file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another process that installs the examples' packages: %w", context.Cause(ctx)), file.Close())
		case <-pause.C:
		}
	}
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if err == nil {
		return true, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return false, fmt.Errorf("look for the example's packages: %w", err)
}
