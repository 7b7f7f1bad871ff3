package worker

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// here is a host on which processes come and go, and counts what is open for their pools.
type here struct {
	*whileHere
	live          atomic.Pointer[[]*process.Process]
	refuses       atomic.Bool  // to open
	opens, closes atomic.Int64 // how many there have been
	log           logtest.Log
}

// set replaces the processes of the host, and lets all goroutines come to rest.
func (h *here) set(live ...*process.Process) {
	h.live.Store(&live)
	synctest.Wait()
}

// after lets a time pass.
func (h *here) after(d time.Duration) {
	sleep.For(nil, d)
	synctest.Wait()
}

// inHere calls f with a host whose processes have their pool's folder as their key, and ends it.
func inHere(t *testing.T, f func(t *testing.T, h *here)) {
	synctest.Test(t, func(t *testing.T) {
		h := &here{}
		h.whileHere = &whileHere{
			list: func() []*process.Process { return *h.live.Load() },
			key: func(p *process.Process) any {
				if dir := p.SharedSpec().Pool.Dir; dir != "" {
					return dir
				}
				return nil
			},
			open: func(string, *process.Process) (func(), error) {
				if h.opens.Add(1); h.refuses.Load() {
					return nil, errors.New("not now")
				}
				return func() { h.closes.Add(1) }, nil
			},
			failure: "cannot open", retry: 2 * time.Second, linger: 10 * time.Second,
			log: slog.New(slog.NewTextHandler(&h.log, nil)), wake: make(chan struct{}, 1), held: map[string]*held{},
		}
		h.set()
		t.Cleanup(func() {
			if !h.refuses.Load() {
				require.Equal(t, h.opens.Load(), h.closes.Load())
			}
		})
		background(t, h.run)
		synctest.Wait()
		f(t, h)
	})
}

func in(dir string) func(*spec.Spec) { return func(sp *spec.Spec) { sp.Pool.Dir = dir } }

func TestOpenFromAPoolsFirstProcessUntilALingerAfterItsLast(t *testing.T) {
	processes, dir := supervisor(t), t.TempDir()
	starting := start(t, processes, "p/2", in(""), "sleep", "1000")
	first := start(t, processes, "p/0", in(dir), "sleep", "1000")
	second := start(t, processes, "p/1", in(dir), "sleep", "1000")
	other := start(t, processes, "other/0", in(dir), "sleep", "1000")
	inHere(t, func(t *testing.T, h *here) {
		h.set(starting)
		h.after(time.Minute)
		require.Zero(t, h.opens.Load(), "a process without a key does not count")

		h.set(starting, first)
		sleep.Wake(h.wake)
		synctest.Wait()
		require.EqualValues(t, 1, h.opens.Load(), "at once")
		h.set(second)
		h.after(time.Minute)
		require.EqualValues(t, 1, h.opens.Load(), "the processes of a pool share what is open")

		h.set()
		h.after(9 * time.Second)
		h.set(first) // after a crash
		h.after(9 * time.Second)
		h.set()
		h.after(10 * time.Second)
		require.Zero(t, h.closes.Load())
		h.after(2 * time.Second)
		require.EqualValues(t, 1, h.closes.Load())

		h.set(first, other)
		h.after(time.Second)
		require.EqualValues(t, 3, h.opens.Load(), "one for each pool")
	})
}

func TestTheNewestProcessOfAPoolSaysWhatIsOpen(t *testing.T) {
	processes, one, two := supervisor(t), t.TempDir(), t.TempDir()
	older := start(t, processes, "p/1", in(one), "sleep", "1000")
	newer := start(t, processes, "p/0", in(two), "sleep", "1000")
	inHere(t, func(t *testing.T, h *here) {
		h.set(older)
		h.after(time.Second)
		h.set(newer, older)
		h.after(time.Second)
		require.EqualValues(t, 2, h.opens.Load())
		require.EqualValues(t, 1, h.closes.Load())
		h.after(time.Minute)
		require.EqualValues(t, 2, h.opens.Load())
	})
}

func TestWhatFailsToOpenIsRetriedUntilTheEnd(t *testing.T) {
	p := start(t, supervisor(t), "p/0", in(t.TempDir()), "sleep", "1000")
	inHere(t, func(t *testing.T, h *here) {
		h.refuses.Store(true)
		h.set(p)
		h.after(1500 * time.Millisecond)
		require.EqualValues(t, 1, h.opens.Load())
		require.Contains(t, h.log.String(), `msg="cannot open; retrying" pool=p error="not now"`)
		h.after(2 * time.Second)
		require.EqualValues(t, 2, h.opens.Load())
		h.set()
		h.after(time.Minute)
		tried := h.opens.Load()
		h.after(time.Minute)
		require.Equal(t, tried, h.opens.Load(), "no process is left")

		h.set(p)
		h.after(time.Second)
		require.Equal(t, tried+1, h.opens.Load())
	})
}
