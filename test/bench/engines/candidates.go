package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/dgraph-io/badger/v4"
	"go.etcd.io/bbolt"
)

var bucket = []byte("sessions")

type boltEngine struct{ db *bbolt.DB }

func openBbolt(folder string) (engine, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", folder, err)
	}
	db, err := bbolt.Open(filepath.Join(folder, "sessions.db"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true})
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucket); return err })
	}
	return boltEngine{db}, err
}

func (e boltEngine) get(key []byte) error {
	return e.db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucket).Get(key) == nil {
			return errors.New("no such record")
		}
		return nil
	})
}

func (e boltEngine) put(records map[string][]byte) error {
	return e.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for k, v := range records {
			if err := b.Put([]byte(k), v); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e boltEngine) close() error { return e.db.Close() }

type pebbleEngine struct{ db *pebble.DB }

func openPebble(folder string) (engine, error) {
	db, err := pebble.Open(folder, &pebble.Options{Logger: quiet{}})
	return pebbleEngine{db}, err
}

func (e pebbleEngine) get(key []byte) error {
	_, closer, err := e.db.Get(key)
	if err != nil {
		return err
	}
	return closer.Close()
}

func (e pebbleEngine) put(records map[string][]byte) error {
	b := e.db.NewBatch()
	for k, v := range records {
		if err := b.Set([]byte(k), v, nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

func (e pebbleEngine) close() error { return e.db.Close() }

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

type badgerEngine struct{ db *badger.DB }

func openBadger(folder string) (engine, error) {
	db, err := badger.Open(badger.DefaultOptions(folder).WithSyncWrites(true).WithLogger(nil).WithMetricsEnabled(false))
	return badgerEngine{db}, err
}

func (e badgerEngine) get(key []byte) error {
	return e.db.View(func(tx *badger.Txn) error {
		item, err := tx.Get(key)
		if err != nil {
			return err
		}
		return item.Value(func([]byte) error { return nil })
	})
}

func (e badgerEngine) put(records map[string][]byte) error {
	return e.db.Update(func(tx *badger.Txn) error {
		for k, v := range records {
			if err := tx.Set([]byte(k), v); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e badgerEngine) close() error { return e.db.Close() }
