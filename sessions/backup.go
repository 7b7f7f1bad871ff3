package sessions

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// backupPage is how many sessions a backup reads or restores at a time, and backupTimeout how long that may take.
	backupPage    = 16
	backupTimeout = 30 * time.Second
)

// WriteBackup writes a backup of the sessions with these ids, which Store.IDs has listed, and returns how many it has:
// each is in it as it is when its page is read; one that no longer exists is left out. It extends no TTL and blocks no
// operation. pool names the store.
func WriteBackup(ctx context.Context, store Store, ids []string, pool string, now time.Time,
	out io.Writer) (written int, err error) {
	err = writeLine(out, api.SessionBackup{Format: api.SessionBackupFormat, FormatVersion: api.SessionBackupVersion,
		Pool: pool, ExportedAt: toMillisecond(now)})
	for page := range slices.Chunk(ids, backupPage) {
		if err != nil {
			return written, err
		}
		var found []*Session
		if found, err = peekPage(ctx, store, page); err != nil {
			return written, err
		}
		for _, s := range found {
			if s != nil && err == nil {
				err = writeLine(out, s)
				written++
			}
		}
	}
	if err == nil {
		err = writeLine(out, api.SessionBackupEnd{Sessions: written})
	}
	return written, err
}

func peekPage(ctx context.Context, store Store, ids []string) ([]*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	return store.Peek(ctx, ids)
}

func writeLine(out io.Writer, value any) error {
	line, err := encode(value)
	if err != nil {
		return fmt.Errorf("encode a line of the backup: %w", err)
	}
	_, err = out.Write(append(line, '\n'))
	return err
}
