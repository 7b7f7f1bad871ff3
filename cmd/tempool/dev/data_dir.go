package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tempool/tempool/internal/installcache"
)

// dataDir is what outlives a run of tempool dev: the server's database, the agent's state, the example's files and the
// logs. Only one starter uses it at a time.
type dataDir struct {
	path      string
	logger    *slog.Logger // of the agent and the Temporal SDK
	serverOut *os.File
	log       *os.File
	lock      *os.File
}

// openDataDir creates and locks a folder; "" is tempool/dev in the user's cache folder. It starts new logs and keeps
// those of the previous run beside them.
func openDataDir(path string) (d *dataDir, err error) {
	if path == "" {
		if path, err = installcache.UserPath("dev", "its data"); err != nil {
			return nil, err
		}
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("resolve its data folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create its data folder; set XDG_CACHE_HOME to a writable folder: %w", err)
	}
	d = &dataDir{path: path}
	if err = d.acquireLock(); err == nil {
		d.log, err = newLog(filepath.Join(path, "agent.log"))
	}
	if err == nil {
		d.serverOut, err = newLog(filepath.Join(path, "temporal.log"))
	}
	if err != nil {
		_ = d.close() // err is the failure to report
		return nil, err
	}
	d.logger = slog.New(slog.NewTextHandler(d.log, nil))
	return d, nil
}

// acquireLock locks the folder until this process ends.
func (d *dataDir) acquireLock() error {
	name := filepath.Join(d.path, "dev.lock")
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open its lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		holder := "another tempool dev"
		if pid, readErr := os.ReadFile(name); readErr == nil && len(pid) > 0 {
			holder += " (process " + strings.TrimSpace(string(pid)) + ")"
		}
		return fmt.Errorf("%s is already running with the data in %s; stop it first, or set XDG_CACHE_HOME to another folder",
			holder, d.path)
	}
	d.lock = lock
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("write its lock: %w", err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write its lock: %w", err)
	}
	return nil
}

// newLog opens an empty log and renames the previous one.
func newLog(path string) (*os.File, error) {
	if err := os.Rename(path, path+".before"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rename the previous log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return file, nil
}

// database returns the SQLite file of its own Temporal server.
func (d *dataDir) database() string { return filepath.Join(d.path, "temporal.db") }

// agentState returns the state folder of its agent. It is the same at every start, so the agent finds its
// earlier state.
func (d *dataDir) agentState() string { return filepath.Join(d.path, "agent") }

func (d *dataDir) close() error {
	var failures error
	for _, file := range []*os.File{d.log, d.serverOut, d.lock} {
		if file != nil {
			failures = errors.Join(failures, file.Close())
		}
	}
	return failures
}
