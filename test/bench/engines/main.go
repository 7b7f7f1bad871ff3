// Engines measures storage engines in pure Go with the access pattern of the embedded session store: records of 300 bytes, and a batch
// counts when it is on disk. It prints one line of JSON.
//
//	engines bbolt|pebble|badger FOLDER [SESSIONS]
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// engine has the operations that the session store needs.
type engine interface {
	get(key []byte) error
	// put stores records atomically and durably.
	put(records map[string][]byte) error
	close() error
}

type measured struct {
	Engine          string  `json:"engine"`
	OpenMS          float64 `json:"open_ms"`
	GetMicros       float64 `json:"get_us"`
	GetsPerSecond   float64 `json:"gets_per_second"`
	DurablePutMS    float64 `json:"durable_put_ms"`
	DurableBatchMS  float64 `json:"durable_batch_of_100_ms"`
	RewritePerS     float64 `json:"updates_per_second_in_batches_of_1000"`
	ResidentMB      float64 `json:"resident_mb"`
	ResidentEmptyMB float64 `json:"resident_empty_mb"`
	OnDiskMB        float64 `json:"on_disk_mb"`
}

var engines = map[string]func(string) (engine, error){"bbolt": openBbolt, "pebble": openPebble, "badger": openBadger}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 || engines[args[0]] == nil {
		return errors.New("usage: engines bbolt|pebble|badger FOLDER [SESSIONS]")
	}
	count := 10_000
	if len(args) > 2 {
		var err error
		if count, err = strconv.Atoi(args[2]); err != nil || count < 1000 {
			return fmt.Errorf("SESSIONS must be a number from 1000, not %q", args[2])
		}
	}
	m := measured{Engine: args[0], ResidentEmptyMB: resident()}
	db, err := engines[args[0]](args[1])
	if err != nil {
		return err
	}
	keys := make([]string, count)
	for i := range keys {
		keys[i] = fmt.Sprintf("session-%08d", i)
	}
	for batch := range slices.Chunk(keys, 1000) {
		if err := db.put(records(batch)); err != nil {
			return err
		}
	}
	if err := m.measure(db, keys); err != nil {
		return err
	}
	m.ResidentMB = resident()
	if err := db.close(); err != nil {
		return err
	}
	if m.OnDiskMB, err = folderMB(args[1]); err != nil {
		return err
	}
	began := time.Now()
	if db, err = engines[args[0]](args[1]); err != nil {
		return err
	}
	m.OpenMS = milliseconds(time.Since(began))
	if err := db.close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

func (m *measured) measure(db engine, keys []string) error {
	var times []time.Duration
	began := time.Now()
	for range 100_000 {
		one := time.Now()
		if err := db.get([]byte(keys[rand.IntN(len(keys))])); err != nil {
			return err
		}
		times = append(times, time.Since(one))
	}
	m.GetsPerSecond = float64(len(times)) / time.Since(began).Seconds()
	m.GetMicros = float64(p50(times).Nanoseconds()) / 1000

	timed := func(batch, times int) ([]time.Duration, error) {
		var took []time.Duration
		for range times {
			some := make([]string, batch)
			for i := range some {
				some[i] = keys[rand.IntN(len(keys))]
			}
			r := records(some)
			one := time.Now()
			if err := db.put(r); err != nil {
				return nil, err
			}
			took = append(took, time.Since(one))
		}
		return took, nil
	}
	single, err := timed(1, 100)
	if err != nil {
		return err
	}
	hundred, err := timed(100, 30)
	if err != nil {
		return err
	}
	thousand, err := timed(1000, 20)
	if err != nil {
		return err
	}
	m.DurablePutMS, m.DurableBatchMS, m.RewritePerS = milliseconds(p50(single)), milliseconds(p50(hundred)), 1000/p50(thousand).Seconds()
	return nil
}

func records(keys []string) map[string][]byte {
	r := make(map[string][]byte, len(keys))
	for _, k := range keys {
		r[k] = fmt.Appendf(nil, `{"programs":{},"data":{"user":%q,"cart":[%d,%d,%d],"note":%q},"metadata":{}}`, k, rand.Uint32(), rand.Uint32(), rand.Uint32(), strings.Repeat("x", 180))
	}
	return r
}

func p50(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// resident returns the anonymous resident memory of this process in MB.
func resident() float64 {
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024
		}
	}
	return -1
}

func folderMB(folder string) (float64, error) {
	var bytes int64
	err := filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return float64(bytes) / 1e6, err
}
