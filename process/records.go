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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/internal/atomicfile"
	"github.com/tempool/tempool/process/tree"
)

// record means that an incarnation may be running. It is written before the spawn.
type record struct {
	Worker      string    `json:"worker"`
	Incarnation int64     `json:"incarnation"`
	Key         tree.Key  `json:"key"`
	Space       string    `json:"space"` // of the numbers in Key; see tree.NumberSpace
	StartedAt   time.Time `json:"started_at"`
	// SocketDir is removed with the record; it may be in the system's temporary directory.
	SocketDir string `json:"socket_dir,omitempty"`
}

func (f *stateDir) recordName(worker string, incarnation int64) string {
	return filepath.Join(f.path, recordsName, url.PathEscape(worker)+"."+strconv.FormatInt(incarnation, 10)+".json")
}

func (f *stateDir) writeRecord(r record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = atomicfile.Write(f.recordName(r.Worker, r.Incarnation), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("%w: record incarnation %d of %s in the state directory: %w", ErrExhausted, r.Incarnation, r.Worker,
			err)
	}
	return nil
}

func (f *stateDir) removeRecord(worker string, incarnation int64) error {
	err := os.Remove(f.recordName(worker, incarnation))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweep kills what earlier supervisors on this directory left running, found by their records and by the cookies in the
// process table. It returns the trees that survived; their records stay, as do those that were taken over.
func (f *stateDir) sweep(hostID string, logger *slog.Logger, taken []keptRecord) (survivors []tree.Key, err error) {
	table, err := tree.ScanTable(nil)
	if err != nil {
		return nil, err
	}
	trees := make(map[string]tree.Key)
	for cookie := range table.CookieHolders {
		if tree.CookieBelongsTo(cookie, hostID, f.id) {
			trees[cookie] = tree.Key{Cookie: cookie}
		}
	}
	records, err := f.readRecords(logger)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		// after a reboot, or of an agent in another container, whose processes may be visible from here
		if !tree.SameNumberSpace(r.Space) {
			r.Key = tree.Key{Cookie: r.Key.Cookie, Mark: r.Key.Mark}
		}
		trees[r.Key.Cookie] = r.Key
	}

	keep, keepDirs := make(map[string]bool), []string(nil)
	for _, r := range taken {
		keep[r.Key.Cookie], keepDirs = true, append(keepDirs, r.SocketDir)
	}
	var kills sync.WaitGroup // at the same time, so that they share their scans
	var mu sync.Mutex        // guards survivors and gone
	gone := make(map[string]bool)
	for cookie, key := range trees {
		if keep[cookie] {
			continue
		}
		kills.Go(func() {
			report := tree.Kill(key)
			if report.Killed > 0 {
				logger.Warn("killed processes of an earlier agent", "cookie", cookie, "processes", report.Killed)
			}
			mu.Lock()
			defer mu.Unlock()
			if gone[cookie] = report.Complete(); !gone[cookie] {
				logger.Error("cannot kill processes of an earlier agent", "cookie", cookie, "report", report.String())
				survivors = append(survivors, key)
			}
		})
	}
	kills.Wait()
	for _, r := range records {
		if !gone[r.Key.Cookie] {
			continue
		}
		err = errors.Join(err, f.removeRecord(r.Worker, r.Incarnation))
		if filepath.Dir(r.SocketDir) == filepath.Clean(os.TempDir()) &&
			strings.HasPrefix(filepath.Base(r.SocketDir), socketDirPrefix) {
			err = errors.Join(err, os.RemoveAll(r.SocketDir))
		}
	}
	return survivors, errors.Join(err, removeContents(filepath.Join(f.path, socketsName), keepDirs))
}

// readRecords returns all records, and removes files that hold none, such as one that was being written when the agent
// was killed. It fails if a file cannot be read: its process may be running.
func (f *stateDir) readRecords(logger *slog.Logger) ([]record, error) {
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
		if err != nil {
			return nil, fmt.Errorf("read the records of earlier incarnations: %w", err)
		}
		if json.Unmarshal(data, &r) != nil || r.Key.Cookie == "" {
			logger.Warn("removing an unreadable record of an earlier incarnation", "file", name)
			_ = os.Remove(name)
			continue
		}
		records = append(records, r)
	}
	return records, nil
}

func removeContents(dir string, keep []string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if name := filepath.Join(dir, entry.Name()); !slices.Contains(keep, name) {
			err = errors.Join(err, os.RemoveAll(name))
		}
	}
	return err
}
