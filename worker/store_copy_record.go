package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// copyRecordFile is the record of a copy within the state folder. There is none while no copy goes on.
const copyRecordFile = "sessions/copy.json"

// copyRecord is what an agent has to know of a copy of sessions to go on with it after its own end: which stores there are and which of
// them is the truth.
type copyRecord struct {
	From    storeAddress `json:"from"`
	To      storeAddress `json:"to"`
	CutOver bool         `json:"cut_over"`
	Began   time.Time    `json:"began"`
}

// storeAddress names a store. It may hold a password: print it by String only.
type storeAddress struct {
	Store string `json:"store"`
	URL   string `json:"url,omitempty"`
}

// parseStore reads "embedded" or the URL of a Redis server.
func parseStore(text string) (storeAddress, error) {
	switch text {
	case spec.StoreEmbedded:
		return storeAddress{Store: spec.StoreEmbedded}, nil
	case spec.StoreMemory:
		return storeAddress{}, api.Errorf(api.CodeInvalid, "a store in memory cannot be copied: it forgets all with its agent, and a copy that has to begin again would find nothing")
	}
	if err := spec.CheckRedisURL(text); err != nil {
		return storeAddress{}, api.Errorf(api.CodeInvalid, `a store is "embedded" or a Redis server: %w`, err)
	}
	return storeAddress{spec.StoreRedis, text}, nil
}

// key is the storeKey of settings that name this store.
func (a storeAddress) key() string { return storeKey(a.applyTo(spec.Sessions{})) }

// applyTo are settings with this store.
func (a storeAddress) applyTo(settings spec.Sessions) spec.Sessions {
	settings.Store, settings.URL = a.Store, a.URL
	if settings.Sync == "" {
		settings.Sync = spec.SyncAlways
	}
	return settings
}

// String names the store without its password.
func (a storeAddress) String() string {
	if a.Store != spec.StoreRedis {
		return a.Store
	}
	parsed, err := url.Parse(a.URL)
	if err != nil {
		return spec.StoreRedis
	}
	return parsed.Redacted()
}

// readCopyRecord returns the record in a state folder, nil if there is none. One that cannot be read is an error: nobody could say then which
// store is the truth.
func readCopyRecord(dir string) (*copyRecord, error) {
	path := filepath.Join(dir, copyRecordFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var record copyRecord
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err == nil && (record.From.Store == "" || record.To.Store == "") {
		err = errors.New("it names no two stores")
	}
	if err != nil {
		return nil, fmt.Errorf("the record of a copy of sessions %s cannot be read, and it alone says which store is the truth: put it right, "+
			"or move it away if the pools' own sessions.store is: %w", path, err)
	}
	return &record, nil
}

// write replaces the record at once, for good.
func (r copyRecord) write(dir string) error {
	path := filepath.Join(dir, copyRecordFile)
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = replaceFile(path, append(text, '\n'))
	}
	if err != nil {
		return api.Errorf(api.CodeStoreUnavailable, "record the copy of sessions: %w", err)
	}
	return nil
}

// removeCopyRecord ends the record.
func removeCopyRecord(dir string) error {
	path := filepath.Join(dir, copyRecordFile)
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return api.Errorf(api.CodeStoreUnavailable, "end the record of the copy of sessions: %w", err)
	}
	return nil
}

// replaceFile leaves either the old content or the new one, whenever the program or the machine stops.
func replaceFile(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".copy-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the first error is the one to tell
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	err = folder.Sync()
	if closed := folder.Close(); err == nil {
		err = closed
	}
	return err
}
