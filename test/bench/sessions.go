package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	bare "github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/sessions/redis"
	"github.com/tempool/tempool/spec"
)

const (
	// sessionsStored is the number of sessions in the store when timing starts and when memory is measured.
	sessionsStored = 10_000
	// sessionsTimed is the number of sequential operations whose median is the value of a round.
	sessionsTimed = 1_000
	// durableTimed replaces sessionsTimed for operations that wait for the disk.
	durableTimed = 100
	sessionSpan  = 500 * time.Millisecond
	// barePage is what a bare durable write writes, in bytes; it overwrites barePages of them in turn.
	barePage  = 4 << 10
	barePages = 16

	sessionGetTarget    = 20.0  // µs
	sessionWriteTarget  = 200.0 // µs
	sessionGetsTarget   = 100_000.0
	sessionWritesTarget = 10_000.0
	sessionMemoryTarget = 1.0 // MB per 1,000 sessions
	redisRatioTarget    = 1.2 // relative to one round trip
)

// sessionWork is an operation on a store or beside it, and where its duration or rate is noted.
type sessionWork struct {
	row   *series
	times int // 0: callers at once, for sessionSpan
	do    func(ctx context.Context, n int) error
}

// measureSessions measures the embedded store without a gateway, with sync = "interval" and "always" in turn, the
// memory of the embedded and the memory store, and the store in Redis.
func measureSessions(ctx context.Context, b *bench) {
	// More than this benchmark creates, so that no create is refused.
	settings := spec.Default().Sessions
	settings.Max, settings.Sync = 2*(sessionsStored+b.rounds*sessionsTimed), spec.SyncInterval
	config := sessions.Config{Settings: func() spec.Sessions { return settings }}
	empty := heapMB()
	memory := embedded.InMemory(config)
	fillSessions(ctx, memory, sessionsStored)
	inMemory := (heapMB() - empty) * 1000 / sessionsStored
	check(memory.Close())
	empty = heapMB()
	store := must(embedded.Open(embedded.Options{Config: config, Path: filepath.Join(b.dir, "sessions.db")}))
	defer store.Close()
	fillSessions(ctx, store, sessionsStored)
	// Unwritten records are on the heap, too. A durable write waits until all of them are written.
	settings.Sync = spec.SyncAlways
	must(store.Update(ctx, sessionID(0), func(*sessions.Session) error { return nil }))
	inFile := (heapMB() - empty) * 1000 / sessionsStored

	r := b.result
	get, update := getSession(store), updateSession(store)
	created := sessionsStored
	create := func(ctx context.Context, _ int) error {
		created++
		_, err := sessions.Create(ctx, store, smallSession(created))
		return err
	}
	disk := must(os.Create(filepath.Join(b.dir, "bare")))
	defer disk.Close()
	write := func(_ context.Context, n int) error {
		if _, err := disk.WriteAt(make([]byte, barePage), int64(n%barePages)*barePage); err != nil {
			return err
		}
		return disk.Sync()
	}
	fast := []sessionWork{
		{r.row("get, p50 of 1,000", "µs"), sessionsTimed, get}, {r.row("update, p50 of 1,000", "µs"), sessionsTimed, update},
		{r.row("create, p50 of 1,000", "µs"), sessionsTimed, create},
		{r.row("gets, 8 callers", "/s"), 0, get}, {r.row("updates, 8 callers", "/s"), 0, update},
	}
	durable := []sessionWork{
		{r.row("bare write of 4 KiB and fsync, p50 of 100", "µs"), durableTimed, write},
		{r.row("sync always: get, p50 of 1,000", "µs"), sessionsTimed, get},
		{r.row("sync always: update, p50 of 100", "µs"), durableTimed, update},
		{r.row("sync always: create, p50 of 100", "µs"), durableTimed, create},
		{r.row("sync always: updates, 8 callers", "/s"), 0, update},
	}
	for range b.rounds {
		settings.Sync = spec.SyncInterval
		workAll(ctx, fast)
		settings.Sync = spec.SyncAlways
		workAll(ctx, durable)
	}
	r.ratio("sync always: update ÷ bare write", durable[2].row, durable[0].row)
	r.row("heap per 1,000 small sessions, embedded", "MB").add(inFile)
	r.row("heap per 1,000 small sessions, memory store", "MB").add(inMemory)
	for i, how := range []string{"", ", sync always"} {
		work := [][]sessionWork{fast, durable[1:]}[i]
		r.atMost("session get, p50"+how, work[0].row.Median, sessionGetTarget, "µs")
		r.atMost("session update, p50"+how, work[1].row.Median, sessionWriteTarget, "µs")
		r.atMost("session create, p50"+how, work[2].row.Median, sessionWriteTarget, "µs")
	}
	r.atLeast("session gets, 8 callers", fast[3].row.Median, sessionGetsTarget, "/s")
	r.atLeast("session updates, 8 callers", fast[4].row.Median, sessionWritesTarget, "/s")
	r.atLeast("session updates, 8 callers, sync always", durable[4].row.Median, sessionWritesTarget, "/s")
	r.atMost("heap per 1,000 small sessions, embedded", inFile, sessionMemoryTarget, "MB")
	r.atMost("heap per 1,000 small sessions, memory store", inMemory, sessionMemoryTarget, "MB")
	r.note("sync = \"interval\" unless a row says always; %d sessions at the start; the heap does not include the page "+
		"cache of the file", sessionsStored)
	b.measureRedis(ctx)
}

// workAll measures each operation once: the median duration of sequential ones, or the rate of several at a time.
func workAll(ctx context.Context, all []sessionWork) {
	for _, one := range all {
		if one.times > 0 {
			took := make([]float64, one.times)
			for i := range took {
				took[i] = 1000 * timed(func() error { return one.do(ctx, i) })
			}
			one.row.add(median(took))
			continue
		}
		calls := make([]int, callers)
		one.row.add(perSecond(ctx, callers, sessionSpan, func(ctx context.Context, caller int) error {
			calls[caller]++
			return one.do(ctx, calls[caller]*callers+caller) // each caller uses its own sessions
		}))
	}
}

// measureRedis compares session operations in Redis with plain commands on the same server. The kinds of operation
// alternate one by one, so that all see the same load.
func (b *bench) measureRedis(ctx context.Context) {
	address := freeAddress()
	_, port, err := net.SplitHostPort(address)
	check(err)
	server := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", b.dir, "--save", "",
		"--appendonly", "no")
	b.launch("redis-server", server, false, func() error { return server.Process.Kill() }) // it has no data to save
	client := bare.NewClient(&bare.Options{Addr: address})
	defer client.Close()
	poll(ctx, startPolled, func(ctx context.Context) error { return client.Ping(ctx).Err() })
	store := must(redis.Open(redis.Options{URL: "redis://" + address}))
	defer store.Close()
	fillSessions(ctx, store, sessionsTimed)
	body := must(smallSession(0).Body())
	for n := range sessionsTimed {
		check(client.Set(ctx, sessionID(n), body, time.Hour).Err())
	}
	plain := func(ctx context.Context, n int) error { return client.Get(ctx, sessionID(n)).Err() }
	r := b.result
	kind := func(name string, do func(context.Context, int) error) timedSide {
		return timedSide{r.row(name, "µs"), func(n int) float64 { return 1000 * timed(func() error { return do(ctx, n) }) }}
	}
	kinds := []timedSide{kind("Redis: plain GET of the same size", plain), kind("Redis: session get", getSession(store)),
		kind("Redis: session update", updateSession(store))}
	b.alternate(sessionsTimed, kinds...)
	for _, kind := range kinds[1:] {
		ratio := r.ratio(kind.row.Name+" ÷ plain GET", kind.row, kinds[0].row)
		r.atMost(kind.row.Name+", relative to a plain GET", ratio.Median, redisRatioTarget, "×")
	}
	r.note("Redis: one redis-server on this machine, without persistence; each session is in the store's cache")
}

func getSession(store sessions.Store) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		_, err := store.Get(ctx, sessionID(n%sessionsStored))
		return err
	}
}

func updateSession(store sessions.Store) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		_, err := store.Update(ctx, sessionID(n%sessionsStored), func(s *sessions.Session) error {
			s.Data["step"] = json.RawMessage(fmt.Sprint(n))
			return nil
		})
		return err
	}
}

func sessionID(n int) string { return fmt.Sprintf("user:%06d", n) }

// smallSession is a session with three short values.
func smallSession(n int) *sessions.Session {
	return &sessions.Session{ID: sessionID(n), Data: map[string]json.RawMessage{
		"name": json.RawMessage(`"Ada Lovelace"`), "step": json.RawMessage("1"),
		"cart": json.RawMessage(`["a book","two pens"]`),
	}}
}

func fillSessions(ctx context.Context, store sessions.Store, size int) {
	for n := range size {
		must(sessions.Create(ctx, store, smallSession(n)))
	}
}

// heapMB returns the live heap of this process in MB.
func heapMB() float64 {
	runtime.GC()
	runtime.GC() // frees what finalizers of the first cycle released
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / 1e6
}
