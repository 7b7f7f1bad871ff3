package ui

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestThePageOfAPoolShowsItsLastHour(t *testing.T) {
	s := newSite(t, operator, nil)
	s.fleet.hosts[1].Heartbeat.Agent = &api.AgentReport{Endpoint: "http://127.0.0.1:9"}
	_, text, _ := s.get("/ui/pools/py")
	require.NotContains(t, text, `id="hour"`, "no gateway has figures of the pool")
	s.fleet.queues = []api.RecentQueue{
		{Host: "web-1", Minutes: []api.Figures{
			{AgeMS: 80_000, Seconds: 60, Calls: 90, Errors: api.Counts{{Name: "worker_error", Count: 6}}, Queue: 4,
				Waiting: api.Times{{0, 90}}, Serving: api.Times{{1024, 80}, {1 << 20, 10}},
				Processes: api.Counts{{Name: api.Deployed, Count: 1}}},
			{AgeMS: 20_000, Seconds: 20, Calls: 10, Serving: api.Times{{1024, 10}}},
		}, Methods: []api.MethodFigures{{Method: "<slow>", Calls: 2, TimeUS: 8e6}, {Method: "echo", Calls: 9, Errors: 1}}},
		{Host: "web-2", Minutes: []api.Figures{
			{AgeMS: 3_700_000, Seconds: 60, Calls: 1e9},
			{AgeMS: 119_000, Seconds: 60, Calls: 30, Queue: 3, Processes: api.Counts{{Name: "stopped", Count: 1},
				{Name: "failed", Count: 2}}},
			{AgeMS: -61_500, Seconds: 59}, // its clock was set
		}, Methods: []api.MethodFigures{{Method: "echo", Calls: 1, Errors: 3, TimeUS: 5000}}},
	}
	_, text, _ = s.get("/ui/pools/py")
	section := regexp.MustCompile(`(?s)<section id="hour".*?</section>`).FindString(text)
	require.Contains(t, section, "130 calls; failed: 6 worker_error; processes: 2 failed, 1 deployed, 1 stopped.")
	require.Contains(t, section, "calls a second, last 1 minute: least 0.5, most 2, newest 0.5",
		"the newest minute is not equally long everywhere")
	require.Contains(t, section, "errors a second, last 1 minute: least 0, most 0.1, newest 0")
	require.Contains(t, section, "time on a worker p99, last 1 minute: least 1.3ms, most 1.3s, newest 1.3ms; time on a "+
		"worker p95")
	require.Contains(t, section, "longest queue, last 1 minute: least 0, most 7, newest 0")
	require.Equal(t, 5, strings.Count(section, `class="start"`), "one minute in each plot")
	require.Equal(t, 5, strings.Count(section, `class="deploy"`))
	require.Regexp(t, `(?s)Slowest methods.*&lt;slow&gt;.*4.0s.*echo.*Most failing methods.*echo.*4</span>`, section)
	require.Equal(t, 1, strings.Count(section, "&lt;slow&gt;"), "it never failed")
	require.Equal(t, []string{"http://127.0.0.1:1", "http://127.0.0.1:9"}, s.fleet.queuesOf,
		"the hosts of its workers, and one where calls wait for a worker elsewhere")
	s.get("/ui/pools/js")
	require.Equal(t, []string{"http://127.0.0.1:9"}, s.fleet.queuesOf)
	s.fleet.cut = api.Errorf("not_found", "no route")
	_, text, _ = s.get("/ui/pools/py")
	require.Contains(t, text, `id="hour"`, "what answers is shown")
	require.Contains(t, text, "The plots do not include the queue of http://127.0.0.1:2: no route.")

	var many []api.MethodFigures
	for i := range 2 * shownMethods {
		many = append(many, api.MethodFigures{Method: string(rune('a' + i))})
	}
	require.Len(t, tablesOf(many)[0].Rows, shownMethods)
}
