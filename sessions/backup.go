package sessions

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

// WriteBackup writes a backup of the sessions with these ids, which Store.IDs has listed, and returns how many it has:
// each is in it as it is when its page is read; one that no longer exists is left out. It extends no TTL and blocks no
// operation. pool names the store.
func WriteBackup(ctx context.Context, store Store, ids []string, pool string, now time.Time,
	out io.Writer) (written int, err error) {
	if err := writeLine(out, api.SessionBackup{Format: api.SessionBackupFormat, FormatVersion: api.SessionBackupVersion,
		Pool: pool, ExportedAt: toMillisecond(now)}); err != nil {
		return 0, err
	}
	for s, err := range peekAll(ctx, store, ids) {
		if err == nil {
			err = writeLine(out, s)
		}
		if err != nil {
			return written, err
		}
		written++
	}
	return written, writeLine(out, api.SessionBackupEnd{Sessions: written})
}

func writeLine(out io.Writer, value any) error {
	line, err := encode(value)
	if err != nil {
		return fmt.Errorf("encode a line of the backup: %w", err)
	}
	_, err = out.Write(append(line, '\n'))
	return err
}

const (
	// maxBackupLine bounds a line of a backup: a session, and as much for white space.
	maxBackupLine = 2 * MaxBody
	// maxBackupBatch bounds the lines that are restored at a time, in bytes.
	maxBackupBatch = 4 << 20
	// ImportMemory is about how much memory one import takes, in bytes.
	ImportMemory = 2*maxBackupBatch + maxBackupLine
)

// Import restores the sessions of a backup into a store that may be in use, and counts what became of them. It holds a
// few at a time. A backup of another pool is refused unless anyPool is set.
//
// A failure names the line and says what was done before it; importing the backup again keeps that. Its code is that of
// the store, or CodeInvalid or CodePayloadTooLarge for a backup that is damaged or incomplete.
func Import(ctx context.Context, store Store, pool string, anyPool bool,
	backup io.Reader) (done api.SessionImport, err error) {
	r := backupReader{in: bufio.NewScanner(backup)}
	r.in.Buffer(nil, maxBackupLine)
	if err := r.header(pool, anyPool); err != nil {
		return done, failure(r.line, err, done)
	}
	for {
		batch, last, readErr := r.batch()
		if line, err := restoreBatch(ctx, store, batch, &done); err != nil {
			return done, failure(line, err, done)
		}
		if readErr != nil {
			return done, failure(r.line, readErr, done)
		}
		if last {
			return done, nil
		}
	}
}

// backedUp is a session of a backup, with the number of its line.
type backedUp struct {
	*Session
	line int
}

// restoreBatch restores sessions concurrently, so that they share a wait for the disk, and counts them. It returns the
// line of the first one that failed.
func restoreBatch(ctx context.Context, store Store, batch []backedUp, done *api.SessionImport) (failed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	results, failures := make([]Restored, len(batch)), make([]error, len(batch))
	var group sync.WaitGroup
	for i, s := range batch {
		group.Go(func() { _, results[i], failures[i] = store.Put(ctx, s.Session, ToRestore) })
	}
	group.Wait()
	for i, result := range results {
		switch {
		case failures[i] != nil && err == nil:
			failed, err = batch[i].line, failures[i]
		case failures[i] != nil: // the first one is reported
		case result == RestoredNew:
			done.Created++
		case result == RestoredOlder:
			done.Replaced++
		case result == RestoredKept:
			done.Kept++
		case result == RestoredExpired:
			done.Expired++
		}
	}
	return failed, err
}

// backupReader reads a backup line by line.
type backupReader struct {
	in       *bufio.Scanner
	line     int // the number of the last line read, from 1
	sessions int
}

// failure is the error for a line, with what was done before.
func failure(line int, err error, done api.SessionImport) error {
	text := fmt.Sprintf("line %d: %s (%s; repeating the import keeps what is done)", line, api.MessageOf(err), done)
	coded, ok := errors.AsType[*api.Error](err)
	if !ok {
		return fmt.Errorf("line %d: %w (%s; repeating the import keeps what is done)", line, err, done)
	}
	return &api.Error{Code: coded.Code, Message: text, RetryAfter: coded.RetryAfter, Err: coded}
}

// next returns the next line without its end, until it is called again. At the end of the backup it fails with io.EOF.
func (r *backupReader) next() ([]byte, error) {
	r.line++
	switch {
	case r.in.Scan():
		return r.in.Bytes(), nil
	case errors.Is(r.in.Err(), bufio.ErrTooLong):
		return nil, api.Errorf(api.CodePayloadTooLarge, "the line has more than %d bytes, and a session at most %d",
			maxBackupLine, MaxBody)
	}
	return nil, cmp.Or(r.in.Err(), io.EOF)
}

func (r *backupReader) header(pool string, anyPool bool) error {
	line, err := r.next()
	if errors.Is(err, io.EOF) {
		return api.Errorf(api.CodeInvalid, "the backup is empty")
	} else if err != nil {
		return err
	}
	var head api.SessionBackup
	if err := json.Unmarshal(line, &head); err != nil || head.Format != api.SessionBackupFormat {
		return api.Errorf(api.CodeInvalid, "this is not a backup of sessions: its first line must have \"format\": %q",
			api.SessionBackupFormat)
	}
	switch {
	case head.FormatVersion != api.SessionBackupVersion:
		return api.Errorf(api.CodeInvalid,
			"the backup has format_version %d, and this agent reads %d: use an agent of the version that wrote it",
			head.FormatVersion, api.SessionBackupVersion)
	case head.Pool != pool && !anyPool:
		return api.Errorf(api.CodeInvalid,
			"the backup is of pool %q, not of %s: import it there, or set any_pool (tempool: --any-pool)", head.Pool, pool)
	}
	return nil
}

// batch returns the next sessions, and whether the backup ends after them. With an error it returns the sessions before
// it, too.
func (r *backupReader) batch() (batch []backedUp, last bool, err error) {
	for bytes := 0; len(batch) < pageSize && bytes < maxBackupBatch; {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			return batch, false, api.Errorf(api.CodeInvalid,
				"the backup ends without its last line, so it is incomplete: it has %d sessions", r.sessions)
		} else if err != nil {
			return batch, false, err
		}
		s, end, err := decodeLine(line)
		if err != nil {
			return batch, false, err
		}
		if end != nil {
			return batch, true, r.checkEnd(*end)
		}
		bytes += len(line)
		batch = append(batch, backedUp{s, r.line})
		r.sessions++
	}
	return batch, false, nil
}

func (r *backupReader) checkEnd(sessions int) error {
	if sessions != r.sessions {
		return api.Errorf(api.CodeInvalid, "the last line names %d sessions, and the backup has %d: lines were lost or added",
			sessions, r.sessions)
	}
	if _, err := r.next(); err == nil {
		return api.Errorf(api.CodeInvalid, "the backup continues after its last line")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// decodeLine decodes a session, or the number of sessions in the last line.
func decodeLine(line []byte) (s *Session, end *int, err error) {
	var decoded struct {
		Session
		Sessions *int `json:"sessions"`
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decodeOne(decoder, &decoded); err != nil {
		return nil, nil, api.Errorf(api.CodeInvalid, "not a session: %w", err)
	}
	return &decoded.Session, decoded.Sessions, nil
}
