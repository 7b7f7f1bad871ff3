package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

var reportTime = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// well is a worker that serves and has nothing wrong with it.
func well(slot int) api.Worker {
	return api.Worker{
		WorkerState: api.WorkerState{
			Worker: fmt.Sprintf("p/%d", slot), State: lifecycle.Ready, Health: lifecycle.Healthy,
			Since: reportTime.Add(-time.Hour), Host: "h1", Grade: string(GradeExcellent),
		},
		Metrics: api.Metrics{
			WorkerCounters:     api.WorkerCounters{RequestsServed: 100, TotalCallTimeMS: 1000, PeakMemoryBytes: 60e6},
			CurrentMemoryBytes: 50e6, CPUPercent: 10, OpenFiles: 5, Threads: 2, UptimeS: 3600,
		},
	}
}

// like is well with a change.
func like(slot int, change func(*api.Worker)) api.Worker {
	w := well(slot)
	change(&w)
	return w
}

// rest makes a worker stay down for this reason.
func rest(w *api.Worker, state lifecycle.State, code api.ReasonCode) {
	w.State, w.Entry.Resting, w.Entry.ReasonCode = state, true, code
}

func poolOf(workers ...api.Worker) pool {
	status := api.PoolStatus{Spec: spec.Default()}
	status.Spec.Rotation.MaxMemory = 500e6
	return pool{api.PoolWorkers{Pool: "p", Size: len(workers), SpecVersion: 1, Workers: workers, Status: status},
		reportTime, true}
}

func TestAPoolThatIsWellNeedsNothing(t *testing.T) {
	r := poolOf(well(0), well(1)).report()
	require.Equal(t, Overview{
		Status: StatusHealthy, Summary: "Pool p is healthy: 2 of 2 workers are in service.", Size: 2, Ready: 2,
		SpecVersion: 1,
		States:      map[string]int{"ready": 2}, Hosts: map[string]int{"h1": 2},
	}, r.Overview)
	require.Empty(t, r.Alerts)
	require.Equal(t, []string{"Nothing to do."}, r.Recommendations)
	require.Equal(t, &Resources{
		Measured: 2, MemoryBytes: 100e6, PeakMemoryBytes: 120e6, CPUPercent: 20,
	}, r.Resources)
	require.EqualValues(t, 200, r.Performance.Requests)
	require.Equal(t, 10.0, r.Performance.AvgCallMS)
	require.Equal(t, 3600.0, r.Health[0].ForS)
}

func TestAReportHasTheFiguresOfEachWorkerThatAnswers(t *testing.T) {
	counted := like(0, func(w *api.Worker) { w.Network = &api.NetworkBytes{ReceivedBytes: 3, SentBytes: 4} })
	silent := like(2, func(w *api.Worker) { w.Network, w.Error = counted.Network, "no answer" })
	r := NewReport(poolOf(counted, well(1), counted, silent).PoolWorkers, reportTime)
	require.Equal(t, &NetworkResources{Measured: 2, NetworkBytes: api.NetworkBytes{ReceivedBytes: 6, SentBytes: 8}},
		r.Resources.Network)
	require.Equal(t, counted.Network, r.Health[0].Network)
	require.Nil(t, r.Health[1].Network)
	require.Equal(t, []any{int64(50e6), 10.0, 3600.0},
		[]any{*r.Health[1].MemoryBytes, *r.Health[1].CPUPercent, *r.Health[1].UptimeS})
	require.Nil(t, r.Health[3].MemoryBytes)
	require.Nil(t, r.Health[3].Network)
	require.Nil(t, poolOf(well(0)).report().Resources.Network)
}

func TestAReportIncludesReplacements(t *testing.T) {
	w := like(0, func(w *api.Worker) {
		w.Incarnation, w.Rotation = 3, &api.RotationStatus{Reason: "it served enough"}
		w.LastRotation = &api.RotationStatus{Incarnation: 3, Reason: "it leaks", Failed: "no room", Observed: true}
	})
	r := poolOf(w).report()
	require.Equal(t, "being replaced: it served enough", r.Health[0].Reason)
	require.Contains(t, r.Alerts[0].Text, "no room")
	require.Contains(t, r.Recommendations[0], "would have been replaced. it leaks")
	w.LastRotation.Incarnation--
	r = poolOf(w).report()
	require.Empty(t, r.Alerts, "that was another process")
	require.NotContains(t, r.Recommendations[0], "would have been replaced")
}

func TestAReportSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	resting := like(0, func(w *api.Worker) {
		rest(w, lifecycle.Failed, api.ReasonGaveUp)
		w.Reason, w.Host = "Gave up after 10 failures in a row", ""
	})
	warnings := Grading{MemoryMB: []float64{100, 250, 500, 750}}.Assess(Reading{MemoryBytes: 600e6}).Warnings
	for name, c := range map[string]struct {
		pool   pool
		status Status
		alerts []string // severity, worker and text
		advice []string // each in part, in order
	}{
		"a worker that gave up": {
			poolOf(resting, well(1)), StatusShort,
			[]string{"warning p/0 It stays down until an operator restarts it: Gave up after 10 failures in a row."},
			[]string{"tempool history p/0), fix it, and restart: tempool workers restart p/0."},
		},
		"a worker that has finished, and one that is stopped until its host has memory": {
			poolOf(like(0, func(w *api.Worker) { rest(w, lifecycle.Finished, api.ReasonStopped) }),
				like(1, func(w *api.Worker) { rest(w, lifecycle.Killed, api.ReasonMemoryPressure) })),
			StatusDown, []string{"critical  No worker of the pool is in service."},
			[]string{"To start p/0 and p/1 again: tempool workers restart p/0, and so on."},
		},
		"nobody serves": {
			poolOf(resting), StatusDown,
			[]string{"critical  No worker of the pool is in service.",
				"warning p/0 It stays down until an operator restarts it: Gave up after 10 failures in a row."},
			[]string{"restart: tempool workers restart p/0."},
		},
		"no host has room": {
			poolOf(well(0), like(1, func(w *api.Worker) {
				w.State, w.Reason = lifecycle.Pending, "nobody took it; start an…" // as in a roster
				w.Entry.ReasonCode = api.ReasonNoCapacity
			})), StatusShort,
			[]string{"warning p/1 It waits for its start: nobody took it; start an…"},
			[]string{"Start an agent that can take p/1, raise --capacity of one, free what the reason says a host " +
				"lacks (such as disk space), or let one that drains have workers again (tempool hosts undrain HOST); " +
				"tempool pool status p shows what is missing."},
		},
		"a rollout that halted": {
			func() pool { p := poolOf(well(0)); p.Rollout = &api.Rollout{Halted: "halted: p/0 is gone"}; return p }(),
			StatusHealthy,
			[]string{"warning  The rolling restart has halted: p/0 is gone."},
			[]string{"tempool pool apply -f pool.toml."},
		},
		"starts that are held": {
			func() pool { p := poolOf(well(0)); p.Status.StartsPaused = "too many starts failed"; return p }(), StatusHealthy,
			[]string{"critical  too many starts failed."},
			[]string{"Fix what keeps the program from starting"},
		},
		"processes that end unasked, most of them by themselves": {
			poolOf(like(0, func(w *api.Worker) { w.RestartsByReason = map[string]int64{"exit": 5, "host_lost": 1} }), well(1)),
			StatusHealthy, nil,
			[]string{"Find out why the processes of p/0 end unexpectedly (most often: exit): tempool history p/0."},
		},
		"calls that find no worker": {
			func() pool {
				p := poolOf(well(0), well(1))
				p.LastMinute = &api.Rates{CallsPerSecond: 2,
					ErrorsPerSecond: map[string]float64{"queue_full": 0.4, "no_workers": 0.1, "worker_error": 1}}
				return p
			}(), StatusHealthy,
			[]string{"critical  25 % of the calls of the last minute found no worker: 0.4 queue_full a second, " +
				"0.1 no_workers a second."},
			[]string{"or send fewer calls at the same time: tempool pool scale p 3."},
		},
		"few calls that find no worker": {
			func() pool {
				p := poolOf(well(0))
				p.LastMinute = &api.Rates{CallsPerSecond: 2, ErrorsPerSecond: map[string]float64{"queue_full": 0.1}}
				return p
			}(), StatusHealthy, nil, []string{NothingToDo},
		},
		"calls that fail": {
			poolOf(like(0, func(w *api.Worker) { w.RequestsFailed = 20 })), StatusHealthy,
			[]string{"warning p/0 20 % of its calls failed (20 of 100)."},
			[]string{"Investigate the failing calls of p/0"},
		},
		"two calls of which one failed say little": {
			poolOf(like(0, func(w *api.Worker) { w.RequestsServed, w.RequestsFailed = 2, 1 })), StatusHealthy, nil,
			[]string{"Nothing to do."},
		},
		"memory near the limit": {
			poolOf(like(0, func(w *api.Worker) { w.CurrentMemoryBytes = 450e6 })), StatusHealthy, nil,
			[]string{"Expect p/0 to be replaced soon, at rotation.max_memory; raise it"},
		},
		"replaced for memory again and again": {
			poolOf(like(0, func(w *api.Worker) {
				w.RotationsByReason = map[string]int64{"memory": 2, "prediction": 1,
					"requests": 9}
			})), StatusHealthy, nil,
			[]string{"Look for a leak in the program, or raise the limit that decides: workers were replaced 3 times for " +
				"their memory or grade."},
		},
		"replaced again and again, and it is known what decided last": {
			poolOf(like(0, func(w *api.Worker) {
				w.RotationsByReason = map[string]int64{"prediction": 3}
				w.LastRotation = &api.RotationStatus{Cause: api.CausePrediction,
					Reason: "Replacing worker before it fails: memory would reach 600 MB (limits.memory) in 3s."}
			})), StatusHealthy, nil,
			[]string{"workers were replaced 3 times for their memory or grade. The last one of p/0: Replacing worker before " +
				"it fails: memory would reach 600 MB (limits.memory) in 3s."},
		},
		"near a limit by its baseline": {
			func() pool {
				p := poolOf(like(0, func(w *api.Worker) { w.CurrentMemoryBytes, w.MaxMemoryBytes = 500e6, 537e6 }))
				p.Status.Spec.Rotation.MaxMemory = spec.Auto
				return p
			}(), StatusHealthy, nil,
			[]string{"Expect p/0 to be replaced soon, at rotation.max_memory; raise it"},
		},
		"one that is unlike its siblings": {
			poolOf(well(0), well(1), like(2, func(w *api.Worker) { w.CurrentMemoryBytes = 150e6 })), StatusHealthy, nil,
			[]string{"Investigate p/2"},
		},
		"near max_memory, and the bands decide first": {
			poolOf(like(0, func(w *api.Worker) {
				w.CurrentMemoryBytes, w.Grade, w.Warnings = 490e6, string(GradeCritical),
					warnings
			})), StatusHealthy,
			[]string{"warning p/0 Its grade is critical. " + warnings[0]},
			[]string{"Expect p/0 to be replaced soon for a bad grade; raise the bands that the alert names"},
		},
		"rotated for its grade": {
			poolOf(like(0, func(w *api.Worker) {
				w.RotationsByReason = map[string]int64{"grade": 3}
				w.Grade, w.Warnings = string(GradeFailing), warnings
			})), StatusHealthy,
			[]string{"warning p/0 Its grade is failing. " + warnings[0]},
			[]string{"workers were replaced 3 times for their memory or grade."},
		},
		"all leased": {
			poolOf(like(0, func(w *api.Worker) { w.Lease = &api.Lease{Holder: "me"} }),
				like(1, func(w *api.Worker) { w.State = lifecycle.Busy })),
			StatusHealthy, nil, []string{"tempool pool scale p 3. All 2 workers are leased."},
		},
		"there were no calls for hours": {
			poolOf(like(0, func(w *api.Worker) { w.RequestsServed = 0 }), like(1, func(w *api.Worker) { w.RequestsServed = 0 })),
			StatusHealthy, nil,
			[]string{"(tempool pool scale p 1)"},
		},
		"one that does not answer": {
			poolOf(well(0), like(1, func(w *api.Worker) { w.Error = "no answer in time" })), StatusHealthy,
			[]string{"warning p/1 It could not be queried: no answer in time."}, []string{"Nothing to do."},
		},
		"stuck in a start": {
			poolOf(well(0), like(1, func(w *api.Worker) { w.State = lifecycle.Starting })), StatusShort,
			[]string{"warning p/1 It has been starting for 1h."}, []string{"Wait for the start of p/1: tempool history p/1"},
		},
		"nobody serves yet": {
			poolOf(like(0, func(w *api.Worker) { w.State, w.Since = lifecycle.Starting, reportTime })), StatusDown,
			[]string{"critical  No worker of the pool is in service."}, []string{"Wait for the start of p/0"},
		},
		"suspended": {
			poolOf(well(0), like(1, func(w *api.Worker) { w.State, w.Reason = lifecycle.Suspended, "asked for by me" })),
			StatusShort,
			[]string{"warning p/1 It is suspended: asked for by me."}, []string{"tempool workers resume p/1."},
		},
		"degraded, unhealthy, and failing in a row": {
			poolOf(well(0), like(1, func(w *api.Worker) {
				w.State, w.Health, w.Reason, w.ConsecutiveFailures = lifecycle.Degraded, lifecycle.Unhealthy, "no answer", 2
			})), StatusShort,
			[]string{"warning p/1 It is degraded: no answer.", "warning p/1 It failed 2 times in a row."},
			[]string{"Find out why the processes of p/1 end unexpectedly: tempool history p/1."},
		},
		"about to end": {
			func() pool { p := poolOf(resting); p.Status.Stopping = true; return p }(), StatusStopping,
			[]string{"warning p/0 It stays down until an operator restarts it: Gave up after 10 failures in a row."},
			[]string{"Nothing to do: the pool is stopping."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.pool.report()
			require.Equal(t, c.status, r.Overview.Status)
			var said []string
			for _, a := range r.Alerts {
				said = append(said, fmt.Sprintf("%s %s %s", a.Severity, a.Worker, a.Text))
				require.Regexp(t, "#[a-z]", a.Runbook)
			}
			require.Equal(t, c.alerts, said)
			require.Len(t, r.Recommendations, len(c.advice), "%q", r.Recommendations)
			for i, part := range c.advice {
				require.Contains(t, r.Recommendations[i], part)
			}
		})
	}
}

func TestOnlyKillsOfStopsAskForALongerGrace(t *testing.T) {
	killed := func(restarts map[string]int64) []string {
		return poolOf(like(0, func(w *api.Worker) {
			w.EndedByOutcome, w.RestartsByReason = map[string]int64{string(lifecycle.Killed): 2}, restarts
		})).report().Recommendations
	}
	require.Contains(t, killed(map[string]int64{"cut_call": 1}),
		"Make the program end on SIGTERM, or raise pool.stop_grace: 1 process did not stop within it and had to be killed.")
	require.NotContains(t, strings.Join(killed(map[string]int64{"cut_call": 2}), " "), "stop_grace",
		"cancelled calls were not given up")
}

func TestAReportWithoutFiguresHasNone(t *testing.T) {
	roster := []api.RosterEntry{{Slot: 1, Gone: true}, {State: lifecycle.Ready, Failures: 2}}
	r := NewRosterReport(api.PoolStatus{Pool: "p", Size: 1, Workers: roster}, reportTime)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"resources":null,"performance":null,"alerts":[]`)
	require.Len(t, r.Health, 1, "a worker that has ended is none")
	require.Zero(t, r.Health[0].ForS)
}

func TestSentencesOfAReportAreShort(t *testing.T) {
	r := poolOf(like(0, func(w *api.Worker) {
		rest(w, lifecycle.Failed, api.ReasonGaveUp)
		w.Reason = strings.Repeat("long\n words ", 1000)
	})).report()
	for _, a := range r.Alerts {
		require.Less(t, len(a.Text), 300)
		require.NotContains(t, a.Text, "\n")
	}
}

func TestNamesAreListedAsPeopleDo(t *testing.T) {
	for want, names := range map[string][]string{
		"a": {"a"}, "a and b": {"a", "b"}, "a, b and c": {"a", "b", "c"}, "a, b and 3 more": {"a", "b", "c", "d", "e"},
	} {
		require.Equal(t, want, listed(names))
	}
}

func TestAPoolThatFollowsDemandGetsAdviceOnItsMaximumOnly(t *testing.T) {
	idle := func(w *api.Worker) { w.RequestsServed = 0 }
	p := poolOf(like(0, idle), like(1, idle))
	p.Status.Scale = &api.ScaleStatus{Cause: string(ScaledByDemand),
		Reason: "demand of 1 call at 1 per worker needs 1 worker"}
	require.Empty(t, sizeAdvice(p, p.Workers), "it follows the demand")
	p.Status.Scale = &api.ScaleStatus{Cause: string(ScaledToMax),
		Reason: "demand of 9 calls at 1 per worker needs 9 workers, more than scale.max = 2"}
	require.Equal(t, "Raise scale.max if calls wait too long (tempool pool scale p MIN..MAX): "+p.Status.Scale.Reason+".",
		sizeAdvice(p, p.Workers))
}
