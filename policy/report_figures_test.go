package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestAReportHasTheFiguresOfEachWorkerThatAnswers(t *testing.T) {
	view := api.PoolWorkers{Pool: "p", Size: 2, Ready: 1, Workers: []api.Worker{
		{WorkerState: api.WorkerState{Worker: "p/0", State: lifecycle.Ready},
			Metrics: api.Metrics{CurrentMemoryBytes: 50 << 20, CPUPercent: 12.5, UptimeS: 90,
				Network: &api.NetworkBytes{ReceivedBytes: 1, SentBytes: 2}}},
		{WorkerState: api.WorkerState{Worker: "p/1", State: lifecycle.Ready}, Error: "no answer"},
	}}
	health := NewReport(view, time.Now()).Health
	require.Len(t, health, 2)
	require.EqualValues(t, 50<<20, *health[0].MemoryBytes)
	require.InDelta(t, 12.5, *health[0].CPUPercent, 0)
	require.InDelta(t, 90, *health[0].UptimeS, 0)
	require.Equal(t, api.NetworkBytes{ReceivedBytes: 1, SentBytes: 2}, *health[0].Network)
	require.Nil(t, health[1].MemoryBytes)
	require.Nil(t, health[1].Network)
}

func TestAReportIncludesReplacements(t *testing.T) {
	w := api.Worker{WorkerState: api.WorkerState{Worker: "p/0", State: lifecycle.Ready, Incarnation: 3}}
	w.Rotation = &api.RotationStatus{Reason: "it served enough"}
	w.LastRotation = &api.RotationStatus{Incarnation: w.Incarnation, Reason: "it leaks", Failed: "no room", Observed: true}
	report := func() Report {
		return NewReport(api.PoolWorkers{Pool: "p", Size: 1, Workers: []api.Worker{w}}, time.Now())
	}
	r := report()
	require.Equal(t, "being replaced: it served enough", r.Health[0].Reason)
	require.Contains(t, r.Alerts[0].Text, "no room")
	require.Contains(t, r.Recommendations[0], "would have been replaced. it leaks")
	w.LastRotation.Incarnation--
	r = report()
	require.Empty(t, r.Alerts, "that was another process")
	require.NotContains(t, r.Recommendations[0], "would have been replaced")
}
