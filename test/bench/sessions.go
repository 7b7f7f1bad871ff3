package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/sessions/memory"
)

const (
	// sessionsStored are in a store before anything is timed, and what memory is measured by.
	sessionsStored = 10_000
	// sessionsTimed are the operations of each kind, one after the other, whose median is a round's value.
	sessionsTimed = 1_000
	sessionSpan   = 500 * time.Millisecond

	sessionGetTarget    = 20.0  // µs
	sessionWriteTarget  = 200.0 // µs
	sessionGetsTarget   = 100_000.0
	sessionWritesTarget = 10_000.0
	sessionMemoryTarget = 1.0 // MB for a thousand
)

// measureSessions times the embedded store without a gateway before it, and weighs what it and the store in memory hold.
func measureSessions(ctx context.Context, b *bench) (err error) {
	// More than all that is ever made here, so that no creation is refused.
	config := sessions.Config{Max: 2 * (sessionsStored + b.rounds*sessionsTimed)}
	empty := heapMB()
	kept := memory.Open(config)
	if err := fillSessions(ctx, kept); err != nil {
		return err
	}
	inMemory := (heapMB() - empty) * 1000 / sessionsStored
	if err := kept.Close(); err != nil {
		return err
	}
	empty = heapMB()
	store, err := embedded.Open(embedded.Options{Config: config, Path: filepath.Join(b.dir, "sessions.db"), Sync: embedded.SyncInterval})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := fillSessions(ctx, store); err != nil {
		return err
	}
	// Until they are written, which takes a moment, records are on the heap, too: who waits for the disk waits for all before it.
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
	made := sessionsStored
	create := func(ctx context.Context, _ int) error {
		made++
		_, err := store.Create(ctx, smallSession(made))
		return err
	}
	gets, updates, creates := r.row("get, p50 of 1,000", "µs"), r.row("update, p50 of 1,000", "µs"), r.row("create, p50 of 1,000", "µs")
	getRate, updateRate := r.row("gets, 8 callers", "/s"), r.row("updates, 8 callers", "/s")
	for range b.rounds {
		for _, one := range []struct {
			row *series
			do  func(context.Context, int) error
		}{{gets, get}, {updates, update}, {creates, create}} {
			if err := timeEach(ctx, one.row, one.do); err != nil {
				return err
			}
		}
		for _, one := range []struct {
			row *series
			do  func(context.Context, int) error
		}{{getRate, get}, {updateRate, update}} {
			turns := make([]int, callers)
			rate, err := perSecond(ctx, callers, sessionSpan, func(ctx context.Context, caller int) error {
				turns[caller]++
				return one.do(ctx, turns[caller]*callers+caller) // each has sessions of its own
			})
			if err != nil {
				return err
			}
			one.row.add(rate)
		}
	}
	r.row("heap for 1,000 small sessions, embedded", "MB").add(inFile)
	r.row("heap for 1,000 small sessions, in memory", "MB").add(inMemory)
	r.atMost("get, p50", gets.Median, sessionGetTarget, "µs")
	r.atMost("update, p50", updates.Median, sessionWriteTarget, "µs")
	r.atMost("create, p50", creates.Median, sessionWriteTarget, "µs")
	r.atLeast("gets", getRate.Median, sessionGetsTarget, "/s")
	r.atLeast("updates", updateRate.Median, sessionWritesTarget, "/s")
	r.atMost("memory for 1,000 small sessions, embedded", inFile, sessionMemoryTarget, "MB")
	r.atMost("memory for 1,000 small sessions, in memory", inMemory, sessionMemoryTarget, "MB")
	r.note("sync = \"interval\", %d sessions in the store at first; what the system caches of the file is not in the heap", sessionsStored)
	return nil
}

// timeEach adds the median of operations that follow one another.
func timeEach(ctx context.Context, row *series, do func(context.Context, int) error) error {
	took := make([]float64, sessionsTimed)
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

// smallSession holds what a client with little to remember would.
func smallSession(n int) *sessions.Session {
	return &sessions.Session{ID: sessionID(n), Data: map[string]json.RawMessage{
		"name": json.RawMessage(`"Ada Lovelace"`), "step": json.RawMessage("1"), "cart": json.RawMessage(`["a book","two pens"]`),
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

// heapMB is what lives on this process's heap, in millions of bytes.
func heapMB() float64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers let go of
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / 1e6
}
