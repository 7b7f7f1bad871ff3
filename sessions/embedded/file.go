package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/ledger"
	"github.com/tempool/tempool/spec"
)

// The file has two buckets with sessions' ids as keys: records, and the times of those uses that changed nothing else.
var (
	bucketRecords = []byte("sessions")
	bucketUses    = []byte("uses")
)

// A record is a checksum of what follows it, the format's number, four numbers and the body. Numbers are big-endian.
const (
	recordFormat = 1
	recordHead   = 4 + 1 + 4*8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendRecord encodes a session; body is its Body.
func appendRecord(s *sessions.Session, body []byte) []byte {
	r := make([]byte, 4, recordHead+len(body))
	r = append(r, recordFormat)
	for _, n := range []int64{s.Version, s.CreatedAt.UnixMilli(), s.LastAccessed.UnixMilli(), s.TTL.D().Milliseconds()} {
		r = binary.BigEndian.AppendUint64(r, uint64(n))
	}
	r = append(r, body...)
	binary.BigEndian.PutUint32(r, crc32.Checksum(r[4:], castagnoli))
	return r
}

// head is a record without its body.
type head struct{ version, created, accessed, ttl int64 }

var errDamaged = errors.New("a record is damaged")

func readRecord(r []byte) (h head, body []byte, err error) {
	if len(r) < recordHead || binary.BigEndian.Uint32(r) != crc32.Checksum(r[4:], castagnoli) {
		return h, nil, errDamaged
	}
	if r[4] != recordFormat {
		return h, nil, fmt.Errorf("a record has format %d, and this Tempool knows %d", r[4], recordFormat)
	}
	for i, n := range []*int64{&h.version, &h.created, &h.accessed, &h.ttl} {
		*n = int64(binary.BigEndian.Uint64(r[5+8*i:]))
	}
	return h, r[recordHead:], nil
}

// session makes a session of a record.
func session(id string, record []byte) (*sessions.Session, error) {
	h, body, err := readRecord(record)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	s := &sessions.Session{
		ID: id, Version: h.version, CreatedAt: time.UnixMilli(h.created).UTC(), LastAccessed: time.UnixMilli(h.accessed).UTC(),
		TTL: spec.Duration(time.Duration(h.ttl) * time.Millisecond),
	}
	return s, s.SetBody(body)
}

// lockTimeout is how long another process may take to let go of the file.
const lockTimeout = 2 * time.Second

// openFile opens or makes the file and reads who is in it.
func openFile(path string) (db *bbolt.DB, known *ledger.Ledger[saved], err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, api.Errorf(api.CodeStoreUnavailable, "make the folder of the session store: %w", err)
	}
	known = ledger.New[saved]()
	if info, missing := os.Stat(path); missing == nil && info.Size() > 0 {
		// What is damaged must not be written to, and the engine would panic elsewhere than here if it had to find that out.
		var reader *bbolt.DB
		reader, err = open(path, true, func(tx *bbolt.Tx) error { return load(tx, known) })
		if err == nil {
			err = reader.Close()
		}
	}
	if err == nil {
		if db, err = open(path, false, nil); err == nil {
			err = db.Update(makeBuckets)
		}
	}
	var system *os.PathError
	switch {
	case err == nil:
		return db, known, nil
	case errors.Is(err, berrors.ErrTimeout):
		err = api.Errorf(api.CodeStoreUnavailable, "another process has the session store %s open: stop it, or give each agent a state folder of its own", path)
	case errors.As(err, &system):
		err = api.Errorf(api.CodeStoreUnavailable, "open the session store: %w", err)
	default:
		err = api.Errorf(api.CodeStoreUnavailable, "the session store %s is damaged: put back a copy of it, or move it away to begin without sessions: %w", path, err)
	}
	if db != nil {
		_ = db.Close() // it is not used, and the first error is the one to tell
	}
	return nil, nil, err
}

// open opens the file and looks at it. After a failure nothing is left open or locked.
func open(path string, readOnly bool, look func(*bbolt.Tx) error) (db *bbolt.DB, err error) {
	var file *os.File
	options := bbolt.Options{
		Timeout: lockTimeout, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, // so that there is no list to be damaged
		OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	}
	err = guard(func() error {
		if db, err = bbolt.Open(path, 0o600, &options); err != nil || look == nil {
			return err
		}
		return db.View(look)
	})
	switch {
	case err == nil:
		return db, nil
	case db != nil:
		_ = guard(db.Close)
	case file != nil: // what made the engine panic may have kept it from letting go of the file
		_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
		_ = file.Close()
	}
	return nil, err
}

func makeBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketRecords, bucketUses} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return fmt.Errorf("make bucket %s: %w", name, err)
		}
	}
	return nil
}

// load reads every record, so that damage shows now and not in the middle of the work.
func load(tx *bbolt.Tx, known *ledger.Ledger[saved]) error {
	records, uses := tx.Bucket(bucketRecords), tx.Bucket(bucketUses)
	if records == nil || uses == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return fmt.Errorf("%w: it is not a session store", errDamaged)
		}
		return nil // whoever made it came no further
	}
	byUse := ledger.ByUse[saved]{}
	last := ""
	err := records.ForEach(func(key, value []byte) error {
		id := string(key)
		if id <= last && last != "" || string(records.Get(key)) != string(value) {
			return fmt.Errorf("%w: session %s is out of order", errDamaged, id)
		}
		last = id
		h, _, err := readRecord(value)
		if err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
		if use := uses.Get(key); len(use) == 8 {
			h.accessed = max(h.accessed, int64(binary.BigEndian.Uint64(use)))
		}
		byUse = append(byUse, &ledger.Entry[saved]{
			ID: id, Version: h.version, Created: h.created, LastAccessed: h.accessed, TTL: h.ttl, Value: saved{accessed: h.accessed},
		})
		return nil
	})
	byUse.AddTo(known)
	return err
}

// guard turns what a damaged file provokes into an error: panics of the engine, and faults of the memory that maps the file.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", errDamaged, cause)
		}
	}()
	return do()
}
