package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
)

const (
	// sessionsStored is the number of sessions in the store when timing starts and when memory is measured.
	sessionsStored = 10_000
	// sessionsTimed is the number of sequential operations whose median is the value of a round.
	sessionsTimed = 1_000
	// durableTimed replaces sessionsTimed for operations that wait for the disk.
	durableTimed = 100
	sessionSpan  = 500 * time.Millisecond
	// barePage is what a bare durable write writes, in bytes.
	barePage = 4 << 10
	// barePages is how many pages it overwrites in turn.
	barePages = 16

	sessionGetTarget    = 20.0  // µs
	sessionWriteTarget  = 200.0 // µs
	sessionGetsTarget   = 100_000.0
	sessionWritesTarget = 10_000.0
	sessionMemoryTarget = 1.0 // MB per 1,000 sessions
)

// measureSessions measures the embedded store without a gateway, with sync = "interval" and "always" in turn, and the
// memory of the embedded and the memory store.
func measureSessions(ctx context.Context, b *bench) (err error) {
	// More than this benchmark creates, so that no create is refused.
	config := sessions.Config{Max: 2 * (sessionsStored + b.rounds*sessionsTimed)}
	empty := heapMB()
	inMemoryStore := embedded.InMemory(config)
	if err := fillSessions(ctx, inMemoryStore); err != nil {
		return err
	}
	inMemory := (heapMB() - empty) * 1000 / sessionsStored
	if err := inMemoryStore.Close(); err != nil {
		return err
	}
	empty = heapMB()
	store, err := embedded.Open(embedded.Options{Config: config, Path: filepath.Join(b.dir, "sessions.db"),
		Sync: embedded.SyncInterval})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := fillSessions(ctx, store); err != nil {
		return err
	}
	// Unwritten records are on the heap, too. A durable write waits until all of them are written.
	store.SetSync(embedded.SyncAlways)
	if _, err := store.Update(ctx, sessionID(0), func(*sessions.Session) error { return nil }); err != nil {
		return err
	}
	store.SetSync(embedded.SyncInterval)
	inFile := (heapMB() - empty) * 1000 / sessionsStored

	r := b.result
	get := func(ctx context.Context, n int) error {
		_, err := store.Get(ctx, sessionID(n%sessionsStored))
		return err
	}
	update := func(ctx context.Context, n int) error {
		_, err := store.Update(ctx, sessionID(n%sessionsStored), func(s *sessions.Session) error {
			s.Data["step"] = json.RawMessage(fmt.Sprint(n))
			return nil
		})
		return err
	}
	created := sessionsStored
	create := func(ctx context.Context, _ int) error {
		created++
		_, err := store.Create(ctx, smallSession(created))
		return err
	}
	disk, err := newBareDisk(filepath.Join(b.dir, "bare"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	gets, updates, creates := r.row("get, p50 of 1,000", "µs"), r.row("update, p50 of 1,000",
		"µs"), r.row("create, p50 of 1,000", "µs")
	getRate, updateRate := r.row("gets, 8 callers", "/s"), r.row("updates, 8 callers", "/s")
	bare := r.row("bare write of 4 KiB and fsync, p50 of 100", "µs")
	durableGets, durableUpdates := r.row("sync always: get, p50 of 1,000", "µs"), r.row("sync always: update, p50 of 100",
		"µs")
	durableCreates, durableRate := r.row("sync always: create, p50 of 100", "µs"), r.row("sync always: updates, 8 callers",
		"/s")
	type timed struct {
		row   *series
		times int
		do    func(context.Context, int) error
	}
	type loaded struct {
		row *series
		do  func(context.Context, int) error
	}
	for range b.rounds {
		for _, part := range []struct {
			sync   embedded.Sync
			timed  []timed
			loaded []loaded
		}{
			{embedded.SyncInterval, []timed{{gets, sessionsTimed, get}, {updates, sessionsTimed, update},
				{creates, sessionsTimed, create}},
				[]loaded{{getRate, get}, {updateRate, update}}},
			{embedded.SyncAlways, []timed{{bare, durableTimed, disk.write}, {durableGets, sessionsTimed, get},
				{durableUpdates, durableTimed, update},
				{durableCreates, durableTimed, create}}, []loaded{{durableRate, update}}},
		} {
			store.SetSync(part.sync)
			for _, one := range part.timed {
				if err := timeEach(ctx, one.row, one.times, one.do); err != nil {
					return err
				}
			}
			for _, one := range part.loaded {
				calls := make([]int, callers)
				rate, err := perSecond(ctx, callers, sessionSpan, func(ctx context.Context, caller int) error {
					calls[caller]++
					return one.do(ctx, calls[caller]*callers+caller) // each caller uses its own sessions
				})
				if err != nil {
					return err
				}
				one.row.add(rate)
			}
		}
	}
	inBare := ratios("sync always: update ÷ bare write", durableUpdates, bare)
	r.Rows = append(r.Rows, inBare)
	r.row("heap per 1,000 small sessions, embedded", "MB").add(inFile)
	r.row("heap per 1,000 small sessions, memory store", "MB").add(inMemory)
	r.atMost("session get, p50", gets.Median, sessionGetTarget, "µs")
	r.atMost("session update, p50", updates.Median, sessionWriteTarget, "µs")
	r.atMost("session create, p50", creates.Median, sessionWriteTarget, "µs")
	r.atLeast("session gets, 8 callers", getRate.Median, sessionGetsTarget, "/s")
	r.atLeast("session updates, 8 callers", updateRate.Median, sessionWritesTarget, "/s")
	r.atMost("heap per 1,000 small sessions, embedded", inFile, sessionMemoryTarget, "MB")
	r.atMost("heap per 1,000 small sessions, memory store", inMemory, sessionMemoryTarget, "MB")
	r.atMost("session get, p50, sync always", durableGets.Median, sessionGetTarget, "µs")
	r.atMost("session update, p50, sync always", durableUpdates.Median, sessionWriteTarget, "µs")
	r.atMost("session create, p50, sync always", durableCreates.Median, sessionWriteTarget, "µs")
	r.atLeast("session updates, 8 callers, sync always", durableRate.Median, sessionWritesTarget, "/s")
	r.note("sync = \"interval\" unless a row says always; %d sessions at the start; the heap does not include the page "+
		"cache of the file", sessionsStored)
	return nil
}

// timeEach adds the median duration of sequential operations.
func timeEach(ctx context.Context, row *series, times int, do func(context.Context, int) error) error {
	took := make([]float64, times)
	for i := range took {
		began := time.Now()
		if err := do(ctx, i); err != nil {
			return err
		}
		took[i] = float64(time.Since(began).Nanoseconds()) / 1e3
	}
	row.add(median(took))
	return nil
}

func sessionID(n int) string { return fmt.Sprintf("user:%06d", n) }

// smallSession is a session with three short values.
func smallSession(n int) *sessions.Session {
	return &sessions.Session{ID: sessionID(n), Data: map[string]json.RawMessage{
		"name": json.RawMessage(`"Ada Lovelace"`), "step": json.RawMessage("1"),
		"cart": json.RawMessage(`["a book","two pens"]`),
	}}
}

func fillSessions(ctx context.Context, store sessions.Store) error {
	for n := range sessionsStored {
		if _, err := store.Create(ctx, smallSession(n)); err != nil {
			return err
		}
	}
	return nil
}

// bareDisk is a file that is as durable as a session of sync = "always", and nothing else.
type bareDisk struct{ *os.File }

func newBareDisk(path string) (bareDisk, error) {
	file, err := os.Create(path)
	return bareDisk{file}, err
}

// write overwrites one page and waits for the disk.
func (d bareDisk) write(_ context.Context, n int) error {
	if _, err := d.WriteAt(make([]byte, barePage), int64(n%barePages)*barePage); err != nil {
		return err
	}
	return d.Sync()
}

// heapMB returns the live heap of this process in MB.
func heapMB() float64 {
	runtime.GC()
	runtime.GC() // frees what finalizers of the first cycle released
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / 1e6
}
