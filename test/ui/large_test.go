package ui_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
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
	"github.com/tempool/tempool/gateway/ui/uitest"
)

// largeFleet is the pool of uitest, all of whose figures change with each question, and an event every 100 ms.
type largeFleet struct {
	ui.Fleet
	asked atomic.Int64
}

func (f *largeFleet) Hosts(context.Context) ([]tempool.Host, error) {
	return uitest.Hosts(f.asked.Add(1)), nil
}

func (f *largeFleet) ListPools(context.Context) ([]string, error) { return []string{"large"}, nil }

func (f *largeFleet) Pool(string) ui.Pool { return largePool{nil, f} }

type largePool struct {
	ui.Pool
	*largeFleet
}

func (f largePool) Status(context.Context) (api.PoolStatus, error) { return uitest.Status(), nil }

func (f largePool) State(_ context.Context, slot int) (api.WorkerState, error) {
	return uitest.Status().Workers[slot].Worker("large").WorkerState, nil
}

func (f largePool) RecentSamples(_ context.Context, o tempool.SampleOptions) ([]api.RecentSamples, error) {
	return uitest.Samples(o.Workers, f.asked.Load()), nil
}

func (f largePool) RecentQueue(context.Context, tempool.GatewayOptions) ([]api.RecentQueue, error) {
	return uitest.Queues(), nil
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
		Outage:   func() time.Duration { return 0 },
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
