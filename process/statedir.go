package process

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/atomicfile"
	"github.com/tempool/tempool/process/tree"
)

// Names in the state directory.
const (
	lockName    = "agent.lock"
	idName      = "id"
	recordsName = "incarnations"
	socketsName = "sockets"
	logsName    = "logs"
)

// stateDir is the supervisor's part of the agent's state directory. Only the holder of its lock uses it.
type stateDir struct {
	path string
	id   string // random and permanent; part of every cookie
	lock *os.File
}

// lockHolder is the content of the lock file.
type lockHolder struct {
	PID     int       `json:"pid"`
	Machine string    `json:"machine"` // or container: PID means nothing on another one
	HostID  string    `json:"host_id"`
	Since   time.Time `json:"since"`
}

// openStateDir creates the directory if it is missing, and locks it.
func openStateDir(path, hostID string) (*stateDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, coded(CodeInvalid, err, "find the state directory %s", path)
	}
	for _, dir := range []string{path, filepath.Join(path, recordsName), filepath.Join(path, socketsName)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, coded(CodeInvalid, err, "make the state directory; use another one or fix its permissions")
		}
		if err := checkWriters(dir); err != nil {
			return nil, err
		}
	}
	f := &stateDir{path: path}
	if err := f.acquireLock(hostID); err != nil {
		return nil, err
	}
	if f.id, err = f.readID(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// checkWriters fails unless only root, the agent's user and its groups, such as Kubernetes' fsGroup of a volume, may
// write to a directory. The workers of an agent that is not root have its user anyway, so that any group may.
func checkWriters(dir string) error {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return coded(CodeInvalid, err, "inspect the state directory %s", dir)
	}
	groups, _ := os.Getgroups() // without them it has one
	groups = append(groups, os.Getegid())
	mode := fs.FileMode(stat.Mode).Perm()
	if (stat.Uid == 0 || int(stat.Uid) == os.Geteuid()) && mode&0o002 == 0 &&
		(mode&0o020 == 0 || os.Geteuid() != 0 || slices.Contains(groups, int(stat.Gid))) {
		return nil
	}
	return coded(CodeInvalid, nil,
		"other users of this host may write to the state directory %s (mode %04o, user %d, group %d) and so control what "+
			"the agent kills and trusts; give it to the agent's user (chown) and run chmod 700 on it, or use a new one",
		dir, mode, stat.Uid, stat.Gid)
}

func (f *stateDir) acquireLock(hostID string) error {
	name := filepath.Join(f.path, lockName)
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return coded(CodeInvalid, err, "open the lock of the state directory")
	}
	// The lock ends when the last descriptor of this opening of the file is closed.
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer file.Close()
		var holder lockHolder
		if data, readErr := os.ReadFile(name); readErr == nil && json.Unmarshal(data, &holder) == nil && holder.PID != 0 {
			return coded(CodeUnavailable, nil,
				"the state directory %s is in use by process %d on %s (host id %q, since %s); stop it, or use another state "+
					"directory and host id",
				f.path, holder.PID, holder.Machine, holder.HostID, holder.Since.Format(time.RFC3339))
		}
		return coded(CodeUnavailable, err,
			"the state directory %s is in use by another process; stop it, or use another state directory and host id", f.path)
	}
	machine, err := os.Hostname()
	if err != nil {
		machine = "an unknown host"
	}
	data, err := json.Marshal(lockHolder{PID: os.Getpid(), Machine: machine, HostID: hostID, Since: time.Now()})
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt(data, 0)
	}
	if err != nil {
		file.Close()
		return coded(CodeUnavailable, err, "write the lock of the state directory")
	}
	f.lock = file
	return nil
}

func (f *stateDir) readID() (string, error) {
	name := filepath.Join(f.path, idName)
	data, err := os.ReadFile(name)
	if err == nil && len(strings.TrimSpace(string(data))) > 0 {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", coded(CodeInvalid, err, "read the id of the state directory")
	}
	id := tree.RandomHex(4)
	if err := atomicfile.Write(name, []byte(id+"\n"), 0o600); err != nil {
		return "", coded(CodeInvalid, err, "write the id of the state directory")
	}
	return id, nil
}

// close releases the lock.
func (f *stateDir) close() { f.lock.Close() }
