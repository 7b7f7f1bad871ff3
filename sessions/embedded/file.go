package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/atomicfile"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/expirylru"
)

// The file has two buckets keyed by session id: records, and the times of uses later than the record's.
var (
	bucketRecords = []byte("sessions")
	bucketUses    = []byte("uses")
)

// lockTimeout is how long Open waits for another process to unlock the file.
const lockTimeout = 2 * time.Second

// openFile opens or creates the file and reads all records.
func openFile(path string) (db *bbolt.DB, stored *expirylru.LRU[state], err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, api.Errorf(api.CodeStoreUnavailable, "create the directory of the session store: %w", err)
	}
	stored = expirylru.New[state]()
	info, err := os.Lstat(path) // a link is never replaced
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() == 0:
		err = create(path)
	case err == nil:
		// Read everything first, read-only: a damaged file must not be written, and bbolt may panic outside of recoverDamage.
		var reader *bbolt.DB
		reader, err = open(path, true, func(tx *bbolt.Tx) error { return load(tx, stored) })
		if err == nil {
			err = reader.Close()
		}
	}
	if err == nil {
		if db, err = open(path, false, nil); err == nil {
			err = db.Update(createBuckets)
		}
	}
	_, system := errors.AsType[syscall.Errno](err)
	switch {
	case err == nil:
		return db, stored, nil
	case errors.Is(err, berrors.ErrTimeout):
		err = api.Errorf(api.CodeStoreUnavailable,
			"another process has the session store %s open: stop it, or give each agent its own state directory", path)
	case system:
		err = api.Errorf(api.CodeStoreUnavailable,
			"cannot open the session store; check that its disk has space and is writable: %w", err)
	default:
		err = api.Errorf(api.CodeStoreUnavailable,
			"the session store %s is damaged: restore a backup, or move the file away to start without sessions: %w", path, err)
	}
	if db != nil {
		_ = db.Close() // the first error matters more
	}
	return nil, nil, err
}

// create makes the file under another name first: if the disk fills up or the process ends, it is not there.
func create(path string) error {
	fresh := path + ".new"
	_ = os.Remove(fresh) // of a process that ended; if it stays, open fails
	db, err := open(fresh, false, nil)
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err == nil {
		err = atomicfile.SyncFolder(filepath.Dir(path))
	}
	return err
}

// open opens the file and calls check, if any, in a read transaction. After a failure the file is neither open nor
// locked.
func open(path string, readOnly bool, check func(*bbolt.Tx) error) (db *bbolt.DB, err error) {
	var file *os.File
	options := bbolt.Options{
		// no free list on disk, so none to be damaged
		Timeout: lockTimeout, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true,
		OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	}
	err = recoverDamage(func() error {
		if db, err = bbolt.Open(path, 0o600, &options); err != nil || check == nil {
			return err
		}
		return db.View(check)
	})
	switch {
	case err == nil:
		return db, nil
	case db != nil:
		_ = recoverDamage(db.Close)
	case file != nil: // after a panic, bbolt may not have unlocked and closed the file
		_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
		_ = file.Close()
	}
	return nil, err
}

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketRecords, bucketUses} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return fmt.Errorf("create bucket %s: %w", name, err)
		}
	}
	return nil
}

// load reads and checks every record, so that damage is found when the store opens.
func load(tx *bbolt.Tx, stored *expirylru.LRU[state]) error {
	records, uses := tx.Bucket(bucketRecords), tx.Bucket(bucketUses)
	if records == nil || uses == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return fmt.Errorf("%w: it is not a session store", errDamaged)
		}
		return nil // the process that created the file ended before it created the buckets
	}
	last := ""
	return records.ForEach(func(key, value []byte) error {
		id := string(key)
		if id <= last && last != "" || string(records.Get(key)) != string(value) {
			return fmt.Errorf("%w: session %s is out of order", errDamaged, id)
		}
		last = id
		h, _, err := decodeRecord(value)
		if err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
		if use := uses.Get(key); len(use) == 8 {
			h.LastAccessed = max(h.LastAccessed, int64(binary.BigEndian.Uint64(use)))
		}
		stored.Add(newEntry(id, h))
		return nil
	})
}

// recoverDamage turns the effects of a damaged file into an error: panics of bbolt, and faults in its memory map.
func recoverDamage(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", errDamaged, cause)
		}
	}()
	return do()
}

// A record is a CRC-32C of the bytes after it, the format number, the four numbers of the header and the body. Numbers
// are big-endian.
const (
	recordFormat = 1
	recordHead   = 4 + 1 + 4*8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("a record is damaged")

// encodeRecord encodes a session; body is its Body.
func encodeRecord(s *sessions.Session, body []byte) []byte {
	r := make([]byte, 4, recordHead+len(body))
	r = append(r, recordFormat)
	h := s.Header()
	for _, n := range []int64{h.Version, h.CreatedAt, h.LastAccessed, h.TTL} {
		r = binary.BigEndian.AppendUint64(r, uint64(n))
	}
	r = append(r, body...)
	binary.BigEndian.PutUint32(r, crc32.Checksum(r[4:], castagnoli))
	return r
}

func decodeRecord(r []byte) (h sessions.Header, body []byte, err error) {
	if len(r) < recordHead || binary.BigEndian.Uint32(r) != crc32.Checksum(r[4:], castagnoli) {
		return h, nil, errDamaged
	}
	if r[4] != recordFormat {
		return h, nil, fmt.Errorf("a record has format %d, this version supports %d", r[4], recordFormat)
	}
	for i, n := range []*int64{&h.Version, &h.CreatedAt, &h.LastAccessed, &h.TTL} {
		*n = int64(binary.BigEndian.Uint64(r[5+8*i:]))
	}
	return h, r[recordHead:], nil
}

func decodeSession(id string, record []byte) (*sessions.Session, error) {
	h, body, err := decodeRecord(record)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	s := h.Session(id)
	return s, s.SetBody(body)
}
