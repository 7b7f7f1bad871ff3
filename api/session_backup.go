package api

import (
	"fmt"
	"time"
)

// Format of a backup of sessions: lines of JSON. The first is a SessionBackup, the last a SessionBackupEnd, and each
// between them a session.
const (
	SessionBackupFormat  = "tempool-sessions"
	SessionBackupVersion = 1
)

// SessionBackup is the first line of a backup.
type SessionBackup struct {
	Format        string    `json:"format"`
	FormatVersion int       `json:"format_version"`
	Pool          string    `json:"pool"` // whose store it is; other pools may share it
	ExportedAt    time.Time `json:"exported_at"`
}

// SessionBackupEnd is the last line of a backup. A backup without it is incomplete.
type SessionBackupEnd struct {
	Sessions int `json:"sessions"` // how many the backup has
}

// SessionBackupFailure ends the answer to an export that failed halfway.
type SessionBackupFailure struct {
	Code  Code   `json:"code"`
	Error string `json:"error"`
}

// SessionImport counts what an import did with the sessions of a backup.
type SessionImport struct {
	Created  int `json:"created"`  // the store had no such session
	Replaced int `json:"replaced"` // the store had a lower version
	Kept     int `json:"kept"`     // the store has the same version or a higher one, or a session that was created later
	Expired  int `json:"expired"`  // the session had expired, and was not restored
}

// String counts in words.
func (i SessionImport) String() string {
	return fmt.Sprintf("%d created, %d replaced, %d kept, %d expired", i.Created, i.Replaced, i.Kept, i.Expired)
}
