package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
)

func exampleView() api.PoolWorkers {
	started := noon.Add(-time.Hour)
	worker := func(slot int, state lifecycle.State) api.Worker {
		name := api.WorkerName("python", slot)
		return api.Worker{
			WorkerState: api.WorkerState{Worker: name, State: state, Health: lifecycle.Healthy, Incarnation: 3, Host: "h1",
				PID: 4711},
			Metrics: api.Metrics{ID: name},
		}
	}
	busy := worker(0, lifecycle.Busy)
	busy.Lease = &api.Lease{ID: "python.0.3.9", Holder: "alice"}
	busy.RequestsServed, busy.RequestsFailed, busy.AvgCallTimeMS = 1234, 5, 1.25
	busy.CurrentMemoryBytes, busy.PeakMemoryBytes, busy.CPUPercent, busy.CallsPerMinute = 50<<20, 64<<20, 99.94, 90.4
	busy.Network = &api.NetworkBytes{ReceivedBytes: 3 << 20}
	busy.OpenFiles, busy.Threads, busy.UptimeS, busy.StartedAt = 12, 4, 3661, &started
	busy.LeasesGranted, busy.LeasesRefused, busy.Restarts = 40, 2, 2
	busy.Reason = "leased to alice"
	busy.Limits = map[string]string{"open_files": "rlimit", "memory": "cgroup"}
	failed := worker(1, lifecycle.Failed)
	failed.PID, failed.ConsecutiveFailures = 0, 10
	failed.Reason = "gave up after 10 failures: the process exited with code 1; its log ends:\nImportError: no module " +
		"named numpy\n"
	away := worker(2, lifecycle.Ready)
	away.Error = "no answer in time"
	return api.PoolWorkers{Pool: "python", Size: 4, Ready: 2, SpecVersion: 7, Workers: []api.Worker{busy, failed, away}}
}

func TestPsShowsReadyWorkersAndReasonsOfTheOthers(t *testing.T) {
	view := exampleView()
	view.Workers[0].InFlight = 2
	r := succeed(t, newFakeControlPlane(&fakePool{name: "python", view: view}), "ps", "python")
	require.Equal(t, lines(
		"Workers (2/4 ready)",
		"ID        STATE          REQUESTS  MEMORY    UPTIME  AVG CALL  INCARNATION  HOST  PID   HOLDER  REASON",
		"python/0  busy, 2 calls  1234      50.0 MiB  1h1m    1.2ms     3            h1    4711  alice",
		"python/1  failed         0         -         -       -         3            h1    -     -       gave up "+
			"after 10 "+
			"failures: the process exited…log ends: ImportError: no module named numpy",
		"python/2  ready          0         -         -       -         3            h1    4711  -       no answer, "+
			"showing "+
			"the pool's last report: no answer in time",
	), r.out)
	require.Empty(t, r.err)
}

func TestPsAndTopShowWhoseAProcessIs(t *testing.T) {
	view := exampleView()
	view.Workers[0].Process, view.Workers[0].Key = 12, &api.KeyUse{Key: "0a1b2c3d", Since: noon.Add(-5 * time.Minute)}
	fake := newFakeControlPlane(&fakePool{name: "python", view: view})
	r := succeed(t, fake, "ps", "python")
	require.Regexp(t, `python/0 .* 3\.12 +h1 +4711 +alice, key 0a1b2c3d for 5m`, r.out)
	require.Contains(t, ctl(t, fake, "ps", "python", "-o", "json").out, `"key": "0a1b2c3d"`)
	require.Regexp(t, `python/0 .* held by alice, key 0a1b2c3d for `, newScreen(t, view.Workers[0]).plain())
}

func TestPsTopAndStatusShowTheLastMinute(t *testing.T) {
	view := exampleView()
	view.LastMinute = &api.Rates{Seconds: 62, CallsPerSecond: 12.34, InFlight: 0.4567, Queue: 3,
		ErrorsPerSecond: map[string]float64{"worker_error": 0.125, "queue_full": 1.5},
		Processes:       map[string]int64{"failed": 2},
		WaitingMS:       api.Percentiles{P95: 12.5, P99: 250}, ServingMS: api.Percentiles{P50: 3, P95: 48.2, P99: 1800}}
	fake := newFakeControlPlane(&fakePool{name: "python", view: view})
	summary := "12.3 calls/s, 1.6 errors/s, p95 48ms after waiting 12ms"
	require.Contains(t, succeed(t, fake, "ps", "python").out, "Workers (2/4 ready), "+summary+"\n")
	require.Contains(t, succeed(t, fake, "ps").out, "Workers (2/4 ready), "+summary+"\n")
	require.Contains(t, succeed(t, fake, "ps", "python", "-o", "json").out, `"calls_per_second": 12.34`)
	status := succeed(t, fake, "pool", "status", "python").out
	require.Regexp(t, `Last minute +`+summary+`; 0\.46 in flight on average\n`+
		` +Waiting +p50 0ms, p95 12ms, p99 250ms; at most 3 calls at once\n +Serving +p50 3\.0ms, p95 48ms, p99 1\.8s\n`+
		` +queue_full +1\.5 errors/s\n +worker_error +0\.12 errors/s\n +Processes +2 failed\n`, status)
	require.Equal(t, "24.7 calls/s, 3.3 errors/s", ratesSummary([]api.PoolWorkers{view, view, {}}))
	s := newScreen(t, view.Workers...)
	s.send(topRosters{views: []api.PoolWorkers{view}, at: noon})
	require.Contains(t, s.plain(), "2/4 ready  "+summary)
}

func TestPsShowsWhatAWorkerAnswersNow(t *testing.T) {
	leased := exampleView().Workers[0].WorkerState
	leased.Lease, leased.PID = &api.Lease{Holder: "bob"}, 4712
	f := newFakeControlPlane(&fakePool{name: "python", view: exampleView(),
		states: map[int][]api.WorkerState{0: {leased}, 2: {{Worker: "python/2", Ended: true, State: lifecycle.Failed}}}})
	r := succeed(t, f, "ps", "python")
	require.Regexp(t, `python/0 +busy +1234 .* 4712 +bob`, r.out)
	require.Regexp(t, `python/2 +failed `, r.out)
}

func TestPsShowsTheClientsOfMCP(t *testing.T) {
	view := exampleView()
	view.MCPSessions = 2
	view.Workers[0].Lease.Holder = "mcp:h1.2345"
	view.Workers[0].MCPClient = &api.MCPClient{Principal: "certificate of-somebody-whose-name-is-long",
		Since: noon.Add(-5 * time.Minute)}
	out := succeed(t, newFakeControlPlane(&fakePool{name: "python", view: view}), "ps", "python").out
	require.Contains(t, out, "Workers (2/4 ready), 2 MCP sessions\n")
	require.Regexp(t, `python/0 +busy .* MCP certificate…[a-z-]+ for 5m0s, mcp:h1\.2345`, out)
}

func TestStatsShowResourceUsage(t *testing.T) {
	r := succeed(t, newFakeControlPlane(&fakePool{name: "python", view: exampleView()}), "workers", "stats", "python")
	require.Equal(t, lines(
		"ID        STATE   MEMORY    PEAK      CPU %  FILES  THREADS  RECEIVED/SENT  REQUESTS  FAILED  CALLS/MIN  LEASES "+
			"GRANTED  REFUSED  RESTARTS  FAILURES IN A ROW  LIMITS",
		"python/0  busy    50.0 MiB  64.0 MiB  99.9   12     4        3.0 MiB/0 B    1234      5       90         40       "+
			"       2        2         0                  memory:cgroup open_files:rlimit",
		"python/1  failed  -         -         0.0    -      -        -              0         0       0          0        "+
			"       0        0         10                 -",
		"python/2  ready   -         -         0.0    -      -        -              0         0       0          0        "+
			"       0        0         0                  -",
	), r.out)
}

func TestStatsShowWhatPredictionSees(t *testing.T) {
	view := exampleView()
	view.Workers[0].Watch, view.Workers[0].FailsInS = "Watch closely: memory grows by 4.0 MB per minute and would reach "+
		"600 MB (rotation.max_memory) in 2h2m30s (fit 1.00).", 7350
	fake := newFakeControlPlane(&fakePool{name: "python", view: view})
	r := succeed(t, fake, "workers", "stats", "python")
	require.True(t, strings.HasSuffix(r.out, "\npython/0: "+view.Workers[0].Watch+"\n"), r.out)
	require.Contains(t, ctl(t, fake, "workers", "stats", "python", "-o", "json").out, `"fails_in_s": 7350`)
}

func TestPoolStatusShowsProblemsWhatToDoAndFullReasons(t *testing.T) {
	view := exampleView()
	view.Rollout = &api.Rollout{Reason: "apply of spec version 7", Done: 1, Current: []int{1}, Waiting: []int{2}}
	view.Workers[0].TotalCallTimeMS, view.Workers[0].RestartsByReason = 2468, map[string]int64{"start_failed": 2}
	view.Workers[1].Entry = api.RosterEntry{Slot: 1, Resting: true, ReasonCode: api.ReasonGaveUp}
	f := newFakeControlPlane(&fakePool{name: "python", view: view})
	r := succeed(t, f, "pool", "status", "python")
	require.True(t, strings.HasPrefix(r.out, lines(
		"Pool python is short of workers: 2 of 4 are in service. A rolling restart is under way: apply of spec version 7, "+
			"1 done and 2 to go.",
		"",
		"Pool          python",
		"Spec version  7",
		"Rollout       apply of spec version 7: 1 done, restarting [1], waiting [2]",
		"Resources     50.0 MiB, 64.0 MiB at peak; CPU 99.9 %",
		"Calls         1234, 5 failed (0.4 %), 2.0ms on average",
		"Restarts      2 start failed",
		"Rotations     none",
		"Workers (2/4 ready)",
	)), r.out)
	require.True(t, strings.HasSuffix(r.out, lines(
		"",
		"Problems",
		"warning  python/1: It stays down until an operator restarts it: gave up after 10 failures: the process exited "+
			"with code 1; its log ends: ImportError: no module named numpy.",
		"warning  python/1: It failed 10 times in a row.",
		"warning  python/2: It could not be queried: no answer in time.",
		"",
		"What to do",
		"- Find out what ended python/1 (tempool history python/1), fix it, and restart: tempool workers restart python/1.",
		"- See "+policy.Runbook(api.AlertWorkerGaveUp),
		"- See "+policy.Runbook("worker_restarts"),
		"- See "+policy.Runbook("no_answer"),
		"",
		"python/1 failed: gave up after 10 failures: the process exited with code 1; its log ends:",
		"    ImportError: no module named numpy",
		"",
		"python/2 ready: no answer, showing the pool's last report: no answer in time",
	)), r.out)
	require.NotContains(t, r.out, "leased to alice", "a busy worker needs no reason")
	asJSON := decode[poolView](t, ctl(t, f, "pool", "status", "python", "-o", "json"))
	require.Equal(t, policy.StatusShort, asJSON.Report.Overview.Status)
	require.Equal(t, 4, asJSON.Size)

	view.Ended = true
	r = succeed(t, newFakeControlPlane(&fakePool{name: "python", view: view}), "pool", "status", "python")
	require.Contains(t, r.out, "Pool python has stopped; this is its last state")
	require.NotContains(t, r.out, "Problems")
}

func TestJSONOfOnePoolMergesStateAndMetricsOfEachWorker(t *testing.T) {
	for _, command := range [][]string{{"ps", "python"}, {"pool", "status", "python"}, {"workers", "stats", "python"}} {
		f := newFakeControlPlane(&fakePool{name: "python", view: exampleView(), statuses: steps(bothReady)})
		r := succeed(t, f, append(command, "-o", "json")...)
		view := decode[map[string]any](t, r)
		require.Equal(t, "python", view["pool"])
		require.EqualValues(t, 4, view["size"])
		require.EqualValues(t, 2, view["ready"])
		worker := view["workers"].([]any)[0].(map[string]any)
		require.Equal(t, "busy", worker["state"])
		require.Equal(t, "python/0", worker["worker"])
		require.EqualValues(t, 1234, worker["requests_served"])
		require.EqualValues(t, 50<<20, worker["current_memory_bytes"])
		require.Equal(t, "alice", worker["lease"].(map[string]any)["holder"])
	}
}

func TestPsWithoutAPoolListsAllInOrder(t *testing.T) {
	other := api.PoolWorkers{Pool: "mcp", Size: 1, Ready: 1, Workers: []api.Worker{{
		WorkerState: api.WorkerState{Worker: "mcp/0", State: lifecycle.Ready}}}}
	f := newFakeControlPlane(&fakePool{name: "python", view: exampleView()}, &fakePool{name: "mcp", view: other})
	r := succeed(t, f, "ps", "-o", "json")
	views := decode[[]api.PoolWorkers](t, r)
	require.Len(t, views, 2)
	require.Equal(t, "mcp", views[0].Pool)

	table := ctl(t, f, "ps")
	require.True(t, strings.HasPrefix(table.out, "Workers (3/5 ready)\n"), table.out)
	require.Less(t, strings.Index(table.out, "mcp/0"), strings.Index(table.out, "python/0"))
}

func TestPsWithoutPoolsIsAnEmptyList(t *testing.T) {
	require.Equal(t, "[]\n", ctl(t, newFakeControlPlane(), "ps", "-o", "json").out)
	require.True(t, strings.HasPrefix(ctl(t, newFakeControlPlane(), "ps").out, "Workers (0/0 ready)\n"))
}

func TestPsShowsThePoolsThatAnswerIfOthersFail(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", view: exampleView()},
		&fakePool{name: "mute", err: api.Errorf(api.CodeUnavailable, "no answer in time; is an agent running?")},
		&fakePool{name: "ended", err: api.Errorf(api.CodePoolNotFound, "no pool ended is running")})
	r := fail(t, f, "ps")
	require.Contains(t, r.out, "python/0")
	require.Equal(t, "tempool: no answer in time; is an agent running?\n", r.err)
}

func TestPoolListShowsReadyWorkersAndRollouts(t *testing.T) {
	python := roster(entry(0, lifecycle.Ready, 1, ""))
	python.Ready, python.SpecVersion = 1, 2
	python.Rollout = &api.Rollout{Reason: "apply", Halted: "halted: worker 1 did not come back: exit 1"}
	f := newFakeControlPlane(&fakePool{name: "python", statuses: []api.PoolStatus{python}},
		&fakePool{name: "mute", err: api.Errorf(api.CodeUnavailable, "no answer in time")})
	r := fail(t, f, "pool", "list")
	require.Equal(t, "tempool: no answer in time\n", r.err, "not all could be listed")
	require.Equal(t, lines(
		"POOL    READY  SPEC VERSION  NOTE",
		"mute    0/0    0             no answer in time",
		"python  1/1    2             apply: 0 done, restarting [], waiting []; halted: worker 1 did not come back: exit 1",
	), r.out)

	pools := decode[[]map[string]any](t, ctl(t, f, "pool", "list", "-o", "json"))
	require.Equal(t, "python", pools[1]["pool"])
}

// Its pool learns of a worker that crashes repeatedly only what lasts.
func TestPoolListAsksTheWorkersThatAreOutOfService(t *testing.T) {
	flapping := roster(entry(0, lifecycle.Ready, 1, ""), entry(1, lifecycle.Starting, 4, ""),
		entry(2, lifecycle.Failed, 1, ""))
	flapping.Ready = 1
	f := newFakeControlPlane(&fakePool{name: "python", statuses: []api.PoolStatus{flapping},
		states: map[int][]api.WorkerState{1: {{Worker: "python/1", State: lifecycle.Ready, Incarnation: 7}}}})
	require.Contains(t, succeed(t, f, "pool", "list").out, "python  2/3")
}
