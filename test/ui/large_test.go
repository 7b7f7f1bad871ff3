package ui_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/ui"
	"github.com/tempool/tempool/lifecycle"
)

// largeFleet is a pool of 1,000 workers on two hosts, all of whose figures change with each question, and an event
// every 100 ms.
type largeFleet struct {
	ui.Fleet
	asked atomic.Int64
}

const largeSize = 1000

func (f *largeFleet) Hosts(context.Context) ([]tempool.Host, error) {
	turn := f.asked.Add(1)
	hosts := []tempool.Host{{ID: "web-0", HeardAt: time.Now()}, {ID: "web-1", HeardAt: time.Now()}}
	for i := range hosts {
		hosts[i].Heartbeat.Agent = &api.AgentReport{Capacity: 600, Version: "v1", Labels: []string{"default"}}
	}
	for slot := range largeSize {
		score := float64(100 - slot%40)
		host := &hosts[slot%2].Heartbeat
		host.Processes = append(host.Processes, api.ProcessReport{
			Process:  api.Process{Worker: api.WorkerName("large", slot), Incarnation: 1},
			InFlight: int(turn) % 3, UptimeMS: turn * 1000, Usage: api.Usage{Requests: turn * int64(slot), TotalMS: turn * 10},
			Sample:     &api.Sample{MemoryBytes: int64(slot)<<16 + turn<<20, CPUPercent: float64(slot % 100), At: time.Now()},
			Assessment: &api.Assessment{Grade: "good", Score: score, MaxMemoryBytes: 512 << 20},
		})
	}
	return hosts, nil
}

func (f *largeFleet) ListPools(context.Context) ([]string, error) { return []string{"large"}, nil }

func (f *largeFleet) Pool(string) ui.Pool { return largePool{nil, f} }

type largePool struct {
	ui.Pool
	*largeFleet
}

func (f largePool) Status(context.Context) (api.PoolStatus, error) {
	s := api.PoolStatus{Pool: "large", Size: largeSize, SpecVersion: 1}
	for slot := range largeSize {
		s.Workers = append(s.Workers, largeEntry(slot))
	}
	return s, nil
}

func (f largePool) State(_ context.Context, slot int) (api.WorkerState, error) {
	return largeEntry(slot).Worker("large").WorkerState, nil
}

func largeEntry(slot int) api.RosterEntry {
	entry := api.RosterEntry{Slot: slot, State: lifecycle.Ready, Incarnation: 1, Host: fmt.Sprint("web-", slot%2),
		PID: slot + 100, Endpoint: fmt.Sprint("http://web-", slot%2), Since: time.Now().Add(-time.Hour), SpecVersion: 1}
	if slot%97 == 5 {
		entry.State, entry.Reason = lifecycle.Pending, "waits before the next start: exited with code 3, 4 times in a row"
	}
	return entry
}

// RecentSamples changes with each question, too.
func (f largePool) RecentSamples(_ context.Context, o tempool.SampleOptions) (all []api.RecentSamples, _ error) {
	turn := f.asked.Load()
	for _, slot := range o.Workers {
		one := api.RecentSamples{Worker: api.WorkerName("large", slot)}
		for i := range int64(api.MaxRecentSamples) {
			wave := 1 + math.Sin(float64(i+turn+int64(slot))/5)
			one.AgeMS, one.Incarnation = append(one.AgeMS, (api.MaxRecentSamples-i)*10_000), append(one.Incarnation, 1)
			one.MemoryBytes = append(one.MemoryBytes, int64(slot)<<16+int64(wave*float64(20<<20)))
			one.CPUPercent, one.CallsPerMinute, one.Score = append(one.CPUPercent, float32(wave)), append(one.CallsPerMinute,
				float32(math.Round(100*wave))), append(one.Score, 90)
		}
		all = append(all, one)
	}
	return all, nil
}

// RecentQueue is a wave, too.
func (f largePool) RecentQueue(context.Context, tempool.GatewayOptions) (all []api.RecentQueue, _ error) {
	for phase := range 2 {
		one := api.RecentQueue{Host: fmt.Sprint("web-", phase), Methods: []api.MethodFigures{
			{Method: "tools/call", Calls: 9000, Errors: 45, TimeUS: 9000 * 31_000}, {Method: "render", Calls: 7, TimeUS: 9e6}}}
		for i := range int32(api.FigureMinutes) {
			wave := uint32(300 * (1.1 + math.Sin(float64(i)/9)))
			minute := api.Figures{AgeMS: (api.FigureMinutes - 1 - i) * 60_000, Seconds: 60, Calls: int64(2 * wave),
				Errors: api.Counts{{Name: "worker_error", Count: int64(i % 4)}}, Queue: int64(i % 9),
				Waiting: api.Times{{0, wave}, {20480, wave / 3}},
				Serving: api.Times{{5120, wave}, {20480, wave}, {98304, wave / 9}}}
			if i == 40 {
				minute.Processes = api.Counts{{Name: "stopped", Count: 500}, {Name: api.Deployed, Count: 500}}
			}
			one.Minutes = append(one.Minutes, minute)
		}
		all = append(all, one)
	}
	return all, nil
}

func (f *largeFleet) Events(ctx context.Context, _ tempool.EventOptions) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				e := api.Event{ID: fmt.Sprint("a-", n), Source: "/pools/large/workers/5", Type: api.EventProcessEnded, Time: now,
					Data: []byte(`{}`)}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// TestAPoolOfAThousandWorkersShowsAndScrolls loads the page of a large pool, and scrolls it while it refreshes. It logs
// long tasks: how many there are depends on what else the machine does.
func TestAPoolOfAThousandWorkersShowsAndScrolls(t *testing.T) {
	axe := axeSource(t)
	f := &largeFleet{}
	board := ui.New(ui.Config{Fleet: f, HostID: "web-0", Namespace: "default", Logger: slog.New(slog.DiscardHandler),
		Endpoint: func() string { return "" }})
	operator := &access.Principal{Name: "ops", Rights: access.All}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		board.Serve(w, r, operator)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	b := newBrowser(t)
	b.open(server.URL + "/ui/pools/large")
	b.await("the first page is shown",
		`document.querySelectorAll("#roster tbody tr").length === 100 && document.getElementById("link").textContent `+
			`=== "live"`)
	require.Contains(t, evaluate[string](b, `document.querySelector(".pager").innerText`), "1–100 of 1000")
	require.Equal(t, 200, evaluate[int](b, `document.querySelectorAll("#roster svg.spark path").length`),
		"the memory and the calls of each worker of the page")
	require.Contains(t, evaluate[string](b, `document.querySelector("#hour").innerText`),
		"failed: 180 worker_error; processes: 1000 stopped, 1000 deployed.")
	require.Equal(t, 5, evaluate[int](b, `document.querySelectorAll("#hour .chart").length`))
	evaluate[bool](b, `(longTasks = [], window.moments = new Set(), true)`)
	began := f.asked.Load()
	b.await("the page has been refreshed five times, while it is scrolled",
		`(window.turn = (window.turn ?? 0) + 40, scrollTo(0, turn % document.body.scrollHeight), `+
			`moments.add(document.getElementById("as-of").innerText), moments.size > 5)`)
	require.Eventually(t, func() bool { return f.asked.Load()-began >= 4 }, timeout, 50*time.Millisecond,
		"each refresh asks, unless the last answer is fresh")
	t.Logf("tasks that blocked the page for more than 50 ms, in milliseconds: %v", evaluate[[]float64](b, `longTasks`))
	b.accessible(axe)
	evaluate[bool](b, `(scrollTo(0, 0), true)`)
	b.shot("pool-large")
	b.fits()
	for _, width := range []int64{1280, 390} {
		b.wide(width)
		b.shotOf("#hour .charts", fmt.Sprint("pool-hour-", width))
		b.shotOf("#hour .methods", fmt.Sprint("pool-methods-", width))
	}
	b.wide(1400)
	b.shotOf("#w-10", "pool-large-roster")
	b.follow("Next →")
	require.Equal(t, "large/100", evaluate[string](b, `document.querySelector("#roster tbody th").innerText`))
	b.run(chromedp.Navigate(server.URL + "/ui/pools/large?state=out"))
	b.await("those out of service are shown", `document.querySelectorAll("#roster tbody tr").length === 11`)
}
