package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// fourSamples of a worker: three of an incarnation, and one of the next.
func fourSamples(worker string) api.RecentSamples {
	return api.RecentSamples{
		Worker: worker, AgeMS: []int64{300_000, 290_000, 280_000, 5_000}, Incarnation: []int64{1, 1, 1, 2},
		MemoryBytes: []int64{50 << 20, 60 << 20, 100 << 20, 40 << 20},
		CPUPercent:  []float32{0, 12.5, 200, 1.1}, CallsPerMinute: []float32{0, 60, 120, 6},
		Score: []float32{100, 90, 40, 100},
	}
}

func TestPagesPlotTheSamplesOfWorkers(t *testing.T) {
	s := newSite(t, operator, nil)
	s.fleet.samples = []api.RecentSamples{fourSamples("py/0"), fourSamples("js/0")}
	_, text, _ := s.get("/ui/pools/py")
	require.Equal(t, 2, strings.Count(text, `<svg class="spark"`), "memory and calls of the one worker with samples")
	require.Contains(t, text, `role="img" aria-label="memory, last 5 minutes: `)
	require.Contains(t, text, `least 40.0 MiB, most 100.0 MiB, newest 40.0 MiB; 1 start since"`)
	require.Contains(t, text, `least 0, most 120, newest 6; 1 start since"`)
	require.Equal(t, []int{0, 1, 2}, s.fleet.asked[0].Workers)
	require.Equal(t, []string{"http://127.0.0.1:1"}, s.fleet.asked[0].Gateways, "one request to each host of the page")

	_, text, _ = s.get("/ui/pools/py/workers/0")
	require.Equal(t, 4, strings.Count(text, `<figure class="chart">`))
	for _, want := range []string{"128.0 MiB</span>", "health score", "200 %</span>", "<b>1.1 %</b>",
		"start of another incarnation"} {
		require.Contains(t, text, want)
	}
	require.Nil(t, s.fleet.asked[1].Gateways, "a worker may have been on any host")
	_, text, _ = s.get("/ui/pools/py/workers/1")
	require.Contains(t, text, "No host has sampled it lately")

	asked := len(s.fleet.asked)
	_, again, _ := s.get("/ui/pools/py")
	require.Equal(t, 2, strings.Count(again, `<svg class="spark"`))
	require.Len(t, s.fleet.asked, asked, "refreshes share the plots of a roster")
	clear(s.board.memos.sparks.all) // it is five seconds later
	s.fleet.cut = api.Errorf(api.CodeUnauthorized, "missing or invalid bearer token")
	for _, path := range []string{"/ui/pools/py", "/ui/pools/py/workers/0"} {
		_, text, _ = s.get(path)
		require.Contains(t, text, "<svg", "what answers is shown")
		require.Contains(t, text, "The plots do not include the samples of http://127.0.0.1:2: its gateway asks for a "+
			"token; sign out", path)
	}
}

func TestALineIsDrawnBySampleAndTime(t *testing.T) {
	end := time.Date(2030, 1, 1, 0, 10, 0, 0, time.UTC)
	last := window{end, plotSpan, 45 * time.Second}
	at := func(s int, incarnation int64, value float64) point {
		return point{end.Add(-plotSpan + time.Duration(s)*time.Second), incarnation, value}
	}
	draw := func(points ...point) plot {
		return newPlot(points, last, axis{0, 10}, 600, 12, "calls", countText)
	}
	require.Empty(t, draw().D)
	p := draw(at(0, 1, 0), at(10, 1, 10), at(20, 1, 5))
	require.Equal(t, "M0 11h0L10 1L20 6", p.D)
	require.Equal(t, "calls, last 10 minutes: least 0, most 10, newest 5", p.Text)
	p = draw(at(0, 1, 0), at(100, 1, 10), at(110, 2, 10))
	require.Equal(t, "M0 11h0M100 1h0M110 1h0", p.D, "a gap and another incarnation are not joined")
	require.Equal(t, []string{"110"}, p.Starts)
	require.Equal(t, "12.3 0 7", string(appendTenths(append(appendPlace(nil, 12.34, -1), ' '), 6.99)))
	require.Equal(t, "M0 11h0M600 11h0", draw(at(-100, 1, 0), at(800, 1, 0)).D, "what is outside is at the edge")
	require.Len(t, last.recent([]point{at(-11, 1, 0), at(-1, 1, 0), at(5, 1, 0)}), 1)
	require.True(t, endOfPlots(end.Add(time.Second)).Equal(endOfPlots(end.Add(9*time.Second))),
		"the same text for ten seconds")

	for x, want := range map[float64]float64{0.5: 0.5, 1: 1, 1.1: 2, 3: 5, 99: 100, 101: 200} {
		require.InEpsilon(t, want, roundUp(x, decimal), 1e-9)
	}
	for x, want := range map[float64]float64{50 << 20: 64 << 20, 64 << 20: 64 << 20, 600 << 20: 1 << 30} {
		require.InEpsilon(t, want, roundUp(x, binary), 1e-9)
	}
	require.Equal(t, axis{95, 105}, sparkAxis([]point{{value: 100}}))
	require.Equal(t, axis{0, 1}, sparkAxis([]point{{value: 0}}))
	limited := newPlot([]point{at(0, 1, 5)}, last, axis{0, 10}, 600, 12, "m", countText)
	require.InDelta(t, 6, limited.withLimit(5, axis{0, 10}).Limit, 0.01)
	require.Zero(t, limited.withLimit(11, axis{0, 10}).Limit)
}
