package starter

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
)

// folder keeps what outlives a run of the starter: the server's database, the agent's state, the example's files and the logs. It
// belongs to one starter at a time.
type folder struct {
	path      string
	logPath   string
	serverLog string
	logger    *slog.Logger // of the agent and the Temporal SDK: nothing of it reaches the screen
	serverOut *os.File
	log       *os.File
	lock      *os.File
}

// openFolder makes and locks the folder dev in cacheDir, "" being tempool in the user's cache folder. Logs begin anew; those of the
// run before are kept beside them.
func openFolder(cacheDir string) (*folder, error) {
	if cacheDir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a folder for the starter's data; set HOME or XDG_CACHE_HOME: %w", err)
		}
		cacheDir = filepath.Join(user, "tempool")
	}
	path, err := filepath.Abs(filepath.Join(cacheDir, "dev"))
	if err != nil {
		return nil, fmt.Errorf("find the starter's folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the starter's folder; set XDG_CACHE_HOME to one you may write to: %w", err)
	}
	f := &folder{path: path, logPath: filepath.Join(path, "starter.log"), serverLog: filepath.Join(path, "temporal.log")}
	if err := f.open(); err != nil {
		_ = f.close() // the error at hand is the one to tell
		return nil, err
	}
	return f, nil
}

func (f *folder) open() (err error) {
	if err := f.takeLock(); err != nil {
		return err
	}
	if f.log, err = newLog(f.logPath); err != nil {
		return err
	}
	f.logger = slog.New(slog.NewTextHandler(f.log, nil))
	f.serverOut, err = newLog(f.serverLog)
	return err
}

// takeLock makes this starter the only one on the folder, for as long as the process lives.
func (f *folder) takeLock() error {
	name := filepath.Join(f.path, "starter.lock")
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the starter's lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		who := "another starter"
		if pid, readErr := os.ReadFile(name); readErr == nil && len(pid) > 0 {
			who += " (process " + strings.TrimSpace(string(pid)) + ")"
		}
		return fmt.Errorf("%s runs already with the data in %s; stop it first, or set XDG_CACHE_HOME to have data of your own", who, f.path)
	}
	f.lock = lock
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("write the starter's lock: %w", err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write the starter's lock: %w", err)
	}
	return nil
}

// newLog opens an empty log and keeps the one before.
func newLog(path string) (*os.File, error) {
	if err := os.Rename(path, path+".before"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keep the log of the run before: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return file, nil
}

// database is the SQLite file of the starter's own Temporal server.
func (f *folder) database() string { return filepath.Join(f.path, "temporal.db") }

// forget removes the database. No server may be using it.
func (f *folder) forget() error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(f.database() + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget the old database: %w", err)
		}
	}
	return nil
}

// agentState is the state folder of the starter's agent: the same at every start, so that it finds what it left behind.
func (f *folder) agentState() string { return filepath.Join(f.path, "agent") }

// files is where the example is unpacked.
func (f *folder) files() string { return filepath.Join(f.path, "files") }

func (f *folder) close() error {
	var failures error
	for _, file := range []*os.File{f.log, f.serverOut, f.lock} {
		if file != nil {
			failures = errors.Join(failures, file.Close())
		}
	}
	return failures
}
