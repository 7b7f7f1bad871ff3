package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/atomicfile"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/spec"
)

// copyRecordFile is the record of a copy in the state folder. It exists only while a copy is in progress.
const copyRecordFile = "sessions/copy.json"

// copyRecord is what an agent needs to resume a copy of sessions: the two stores, and which of them is the primary.
type copyRecord struct {
	From    storeAddress `json:"from"`
	To      storeAddress `json:"to"`
	CutOver bool         `json:"cut_over"`
	Began   time.Time    `json:"began"`
}

// storeAddress names a store. Its URL may hold a secret: print it with String only.
type storeAddress struct {
	Store string `json:"store"`
	URL   string `json:"url,omitempty"`
}

// parseStore parses "embedded" or the URL of a Redis server.
func parseStore(text string) (storeAddress, error) {
	switch text {
	case spec.StoreEmbedded:
		return storeAddress{Store: spec.StoreEmbedded}, nil
	case spec.StoreMemory:
		return storeAddress{}, api.Errorf(api.CodeInvalid,
			`a "memory" store cannot be copied: it loses its sessions when the agent restarts, `+
				`and an interrupted copy could not resume`)
	}
	if err := spec.CheckRedisURL(text); err != nil {
		return storeAddress{}, api.Errorf(api.CodeInvalid, `a store is "embedded" or the URL of a Redis server: %w`, err)
	}
	return storeAddress{spec.StoreRedis, text}, nil
}

func addressOf(settings spec.Sessions) storeAddress {
	return storeAddress{settings.Store, settings.URL}
}

// String names the store without its secrets.
func (a storeAddress) String() string {
	if a.Store != spec.StoreRedis {
		return a.Store
	}
	return redact.URLs(a.URL)
}

// specText returns the lines of a spec that name the store, without its secrets.
func (a storeAddress) specText() string {
	if a.Store == spec.StoreRedis {
		return fmt.Sprintf(`sessions.store = "redis" and sessions.url = %q`, a)
	}
	return fmt.Sprintf("sessions.store = %q", a.Store)
}

// readCopyRecord returns the record in a state folder, or nil if there is none. An unreadable record is an error:
// nothing else says which store is the primary.
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
		err = errors.New("from or to is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s, the only record of which store of a session copy is the primary; repair "+
			"it, or move it away "+
			"if sessions.store in the pools' specs is right: %w", path, err)
	}
	return &record, nil
}

// write replaces the record atomically and durably.
func (r copyRecord) write(dir string) error {
	path := filepath.Join(dir, copyRecordFile)
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = atomicfile.WriteDurably(path, append(text, '\n'), 0o600)
	}
	if err != nil {
		return api.Errorf(api.CodeStoreUnavailable, "write the record of the session copy: %w", err)
	}
	return nil
}

func removeCopyRecord(dir string) error {
	path := filepath.Join(dir, copyRecordFile)
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = atomicfile.SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return api.Errorf(api.CodeStoreUnavailable, "remove the record of the session copy: %w", err)
	}
	return nil
}
