package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// reportedPool has one worker in service, one that gave up and one that does not answer.
func reportedPool() *fakePool {
	view := exampleView()
	view.Workers[0].TotalCallTimeMS, view.Workers[0].Grade = 2468, "good"
	view.Workers[0].RestartsByReason = map[string]int64{"start_failed": 2}
	s := spec.Default()
	status := api.PoolStatus{Pool: "python", Size: 4, Spec: s,
		Workers: []api.RosterEntry{{Slot: 0}, {Slot: 1, Resting: true}, {Slot: 2}}}
	return &fakePool{name: "python", view: view, statuses: []api.PoolStatus{status}}
}

func TestReportPrintsText(t *testing.T) {
	r := ctl(t, newFakeControlPlane(reportedPool()), "report", "python")
	requireCode(t, ExitOK, r)
	require.Equal(t, lines(
		"Pool python is short of workers: 2 of 4 are in service.",
		"Spec version 7, 3 on h1; 1 leased.",
		"",
		"Health",
		"WORKER    STATE   FOR  HEALTH   GRADE  SCORE  MEMORY    CPU %  UPTIME  REASON",
		"python/0  busy    -    healthy  good   -      50.0 MiB  99.9   1h1m",
		"python/1  failed  -    healthy  -      -      -         0.0    -       gave up after 10 failures: the process "+
			"exited with code 1; its log ends: ImportError: no…",
		"python/2  ready   -    healthy  -      -      -         -      -       not reachable; last report to the pool: no "+
			"answer in time",
		"",
		"Resources",
		"Memory 50.0 MiB now, 64.0 MiB at peak; CPU 99.9 %; 12 open files; 4 threads.",
		"Network: 3.0 MiB received and 0 B sent by 1 worker.",
		"Largest: python/0 with 50.0 MiB.",
		"",
		"Performance",
		"1234 requests, 5 failed (0.4 %), 2.0ms on average.",
		"Slowest: python/0 with 2.0ms.",
		"Restarts: 2 start failed. Rotations: none.",
		"",
		"Alerts",
		"warning  python/1: It stays down until an operator restarts it: gave up after 10 failures: the process exited "+
			"with code 1; its log ends: ImportError: no module named numpy.",
		"warning  python/1: It failed 10 times in a row.",
		"warning  python/2: It could not be queried: no answer in time.",
		"",
		"Recommendations",
		"- Find out what ended python/1 (tempool history python/1), fix it, and restart: tempool workers restart python/1.",
	), r.out)
}

func TestReportPrintsJSON(t *testing.T) {
	r := ctl(t, newFakeControlPlane(reportedPool()), "report", "python", "-o", "json")
	requireCode(t, ExitOK, r)
	var report policy.Report
	require.NoError(t, json.Unmarshal([]byte(r.out), &report))
	require.Equal(t, policy.StatusShort, report.Overview.Status)
	require.Len(t, report.Health, 3)
	require.Equal(t, "python/1", report.Alerts[0].Worker)
	require.EqualValues(t, 1234, report.Performance.Requests)
	require.InDelta(t, float64(time.Now().Unix()), float64(report.At.Unix()), 60)

	r = ctl(t, newFakeControlPlane(reportedPool()), "report", "-o", "json")
	requireCode(t, ExitOK, r)
	var all []policy.Report
	require.NoError(t, json.Unmarshal([]byte(r.out), &all))
	require.Len(t, all, 1)
}

func TestReportWithoutPools(t *testing.T) {
	r := ctl(t, newFakeControlPlane(), "report")
	requireCode(t, ExitOK, r)
	require.Equal(t, "No pool is running.\n", r.out)
	r = ctl(t, newFakeControlPlane(), "report", "python")
	requireCode(t, ExitFailed, r)
	require.Contains(t, r.err, "no pool python is running")
}
