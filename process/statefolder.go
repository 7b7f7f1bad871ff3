package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Names in the state folder.
const (
	lockName    = "agent.lock"
	idName      = "id"
	recordsName = "incarnations"
	socketsName = "sockets"
)

// stateFolder is the supervisor's part of the agent's state folder, which the holder of its lock has to itself.
type stateFolder struct {
	path string
	id   string // random, made once; part of every cookie
	lock *os.File
}

// lockHolder is what the lock file says about who holds it.
type lockHolder struct {
	PID    int       `json:"pid"`
	HostID string    `json:"host_id"`
	Since  time.Time `json:"since"`
}

// record says that an incarnation may be running. It is written before the process is spawned.
type record struct {
	Worker      string    `json:"worker"`
	Incarnation int64     `json:"incarnation"`
	Key         treeKey   `json:"key"`
	Boot        string    `json:"boot"`
	StartedAt   time.Time `json:"started_at"`
	// SocketDir is a folder outside the state folder that goes with the process.
	SocketDir string `json:"socket_dir,omitempty"`
}

// openStateFolder makes the folder where it is missing and takes its lock.
func openStateFolder(path, hostID string) (*stateFolder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, coded(CodeInvalid, err, "find the state folder %s", path)
	}
	for _, dir := range []string{path, filepath.Join(path, recordsName), filepath.Join(path, socketsName)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, coded(CodeInvalid, err, "make the state folder; choose another one or mend its permissions")
		}
	}
	f := &stateFolder{path: path}
	if err := f.takeLock(hostID); err != nil {
		return nil, err
	}
	if f.id, err = f.readID(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *stateFolder) takeLock(hostID string) error {
	name := filepath.Join(f.path, lockName)
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return coded(CodeInvalid, err, "open the lock of the state folder")
	}
	if err := tryLock(file); err != nil {
		defer file.Close()
		var holder lockHolder
		if data, readErr := os.ReadFile(name); readErr == nil && json.Unmarshal(data, &holder) == nil && holder.PID != 0 {
			return coded(CodeUnavailable, nil, "the state folder %s is in use by process %d (host id %q, since %s): stop that one, or use another state folder and host id",
				f.path, holder.PID, holder.HostID, holder.Since.Format(time.RFC3339))
		}
		return coded(CodeUnavailable, err, "the state folder %s is in use by another process: stop that one, or use another state folder and host id", f.path)
	}
	data, err := json.Marshal(lockHolder{PID: os.Getpid(), HostID: hostID, Since: time.Now()})
	if err == nil {
		err = errors.Join(file.Truncate(0), writeAt0(file, data))
	}
	if err != nil {
		file.Close()
		return coded(CodeUnavailable, err, "write the lock of the state folder")
	}
	f.lock = file
	return nil
}

func writeAt0(file *os.File, data []byte) error {
	_, err := file.WriteAt(data, 0)
	return err
}

func (f *stateFolder) readID() (string, error) {
	name := filepath.Join(f.path, idName)
	data, err := os.ReadFile(name)
	if err == nil && len(strings.TrimSpace(string(data))) > 0 {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", coded(CodeInvalid, err, "read the id of the state folder")
	}
	id := randomHex(4)
	if err := writeAtomically(name, []byte(id+"\n")); err != nil {
		return "", coded(CodeInvalid, err, "write the id of the state folder")
	}
	return id, nil
}

// close releases the lock.
func (f *stateFolder) close() { f.lock.Close() }

func (f *stateFolder) recordName(worker string, incarnation int64) string {
	return filepath.Join(f.path, recordsName, url.PathEscape(worker)+"."+strconv.FormatInt(incarnation, 10)+".json")
}

func (f *stateFolder) writeRecord(r record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = writeAtomically(f.recordName(r.Worker, r.Incarnation), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record incarnation %d of %s in the state folder: %w", r.Incarnation, r.Worker, err)
	}
	return nil
}

func (f *stateFolder) removeRecord(worker string, incarnation int64) error {
	err := os.Remove(f.recordName(worker, incarnation))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweep ends what earlier supervisors on this folder left running, by their records and by the cookies in the process table. What did
// not die is returned and stays on record.
func (f *stateFolder) sweep(hostID string, logger *slog.Logger) ([]treeKey, error) {
	t, err := scan(onlyRead)
	if err != nil {
		return nil, err
	}
	trees := make(map[string]treeKey)
	for cookie := range t.bearers {
		if cookieOfState(cookie, hostID, f.id) {
			trees[cookie] = treeKey{Cookie: cookie}
		}
	}
	records, err := f.readRecords(logger)
	if err != nil {
		return nil, err
	}
	boot := bootID()
	for _, r := range records {
		if r.Boot == boot {
			trees[r.Key.Cookie] = r.Key // of an earlier boot, PID and start time could be anybody's
		}
	}

	var left []treeKey
	for cookie, key := range trees {
		report := killTree(key)
		if report.killed > 0 {
			logger.Warn("ended processes that an earlier agent left over", "cookie", cookie, "processes", report.killed)
		}
		if report.err != nil || len(report.left) > 0 {
			logger.Error("processes of an earlier agent could not be ended", "cookie", cookie, "report", report.String())
			left = append(left, key)
			continue
		}
		delete(trees, cookie)
	}
	for _, r := range records {
		if _, stays := trees[r.Key.Cookie]; stays {
			continue
		}
		err = errors.Join(err, f.removeRecord(r.Worker, r.Incarnation))
		if r.SocketDir != "" {
			err = errors.Join(err, os.RemoveAll(r.SocketDir))
		}
	}
	return left, errors.Join(err, emptyFolder(filepath.Join(f.path, socketsName)))
}

// readRecords removes what is no record.
func (f *stateFolder) readRecords(logger *slog.Logger) ([]record, error) {
	dir := filepath.Join(f.path, recordsName)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the records of earlier incarnations: %w", err)
	}
	var records []record
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		var r record
		data, err := os.ReadFile(name)
		if err != nil || json.Unmarshal(data, &r) != nil || r.Key.Cookie == "" {
			logger.Warn("a record of an earlier incarnation is unreadable and is removed", "file", name)
			_ = os.Remove(name)
			continue
		}
		records = append(records, r)
	}
	return records, nil
}

func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}

// writeAtomically leaves either the old content or the new one, whenever the program or the machine stops.
func writeAtomically(name string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}
