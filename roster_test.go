package tempool

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func reportOf(p api.ProcessReport) (all Reports) {
	all.Add("h", api.HostHeartbeat{Processes: []api.ProcessReport{p}})
	return all
}

func TestARosterHasTheForecastThatTheHostLastReported(t *testing.T) {
	status := api.PoolStatus{Pool: "p", Size: 1, Workers: []api.RosterEntry{{State: lifecycle.Ready, Incarnation: 2}}}
	report := api.ProcessReport{
		Process: api.Process{Worker: "p/0", Incarnation: 2},
		Sample:  &api.Sample{MemoryBytes: 5, Network: &api.NetworkBytes{SentBytes: 7}},
		Assessment: &api.Assessment{Grade: "good", Score: 90, Watch: "Watch closely: memory grows.", FailsInMS: 7_500,
			CallsPerMinute: 3},
	}
	w := RosterOf(status, reportOf(report)).Workers[0]
	require.Equal(t, "Watch closely: memory grows.", w.Watch)
	require.InDelta(t, 7.5, w.FailsInS, 0)
	require.InDelta(t, 3, w.CallsPerMinute, 0)
	require.EqualValues(t, 7, w.Network.SentBytes)

	later := api.Worker{WorkerState: api.WorkerState{Incarnation: 2},
		Metrics: api.Metrics{Watch: "Watch closely: memory grows.", FailsInS: 7.5}}
	report.Assessment = &api.Assessment{Grade: "good", Score: 90}
	addReport(&later, report)
	require.Empty(t, later.Watch, "the host no longer sees a failure")
	require.Zero(t, later.FailsInS)
}

// TestAWorkerThatDoesNotAnswerInTimeIsShownAsReported: a view must not pass an old report off as an answer.
func TestAWorkerThatDoesNotAnswerInTimeIsShownAsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		views := []api.PoolWorkers{{Workers: make([]api.Worker, 6)}}
		for i := range views[0].Workers {
			views[0].Workers[i].WorkerState = api.WorkerState{Worker: api.WorkerName("p", i), State: lifecycle.Ready}
		}
		views[0].Workers[5].State = lifecycle.Starting
		began := time.Now()
		AskWorkers(t.Context(), views, func(ctx context.Context, _ string, slot int) (api.WorkerState, error) {
			switch slot {
			case 0:
				return api.WorkerState{Worker: "p/0", State: lifecycle.Busy}, nil
			case 1: // not before its start
				return api.WorkerState{}, api.ErrWorkerNotFound
			case 4, 5: // its workflow was terminated
				return api.WorkerState{Worker: api.WorkerName("p", slot), State: lifecycle.Failed, Ended: true}, nil
			case 3: // the caller's own limit, or the failure of another one's question
				return api.WorkerState{}, api.Errorf(api.CodeUnavailable, "timed out: %w", context.DeadlineExceeded)
			}
			<-ctx.Done()
			return api.WorkerState{}, ctx.Err()
		})
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Equal(t, lifecycle.Busy, views[0].Workers[0].State)
		for i, want := range []string{"", "", "not within 2s", "not within 2s"} {
			require.Equal(t, want, views[0].Workers[i].Error)
		}
		require.Equal(t, lifecycle.Ready, views[0].Workers[2].State)
		require.Equal(t, lifecycle.Failed, views[0].Workers[4].State, "its pool has not heard of the end")
		require.Equal(t, lifecycle.Starting, views[0].Workers[5].State, "its next workflow starts")
	})
}

// TestOfManyWorkersThoseOutOfServiceAreAsked: the first ones of a pool of a thousand are no better than the others.
func TestOfManyWorkersThoseOutOfServiceAreAsked(t *testing.T) {
	workers := make([]api.Worker, 1000)
	for i := range workers {
		workers[i].WorkerState = api.WorkerState{Worker: api.WorkerName("p", i), State: lifecycle.Ready}
	}
	workers[900].State = lifecycle.Starting
	var asked atomic.Int64
	AskWorkers(t.Context(), []api.PoolWorkers{{Workers: workers}},
		func(_ context.Context, _ string, slot int) (api.WorkerState, error) {
			asked.Add(1)
			require.Equal(t, 900, slot)
			return api.WorkerState{State: lifecycle.Pending}, nil
		})
	require.EqualValues(t, 1, asked.Load())
	require.Equal(t, lifecycle.Pending, workers[900].State)
}

func TestTheWorkersThatAreAskedAreOfAllPools(t *testing.T) {
	var views []api.PoolWorkers
	for pool, down := range []int{100, 1} {
		workers := make([]api.Worker, 100)
		for i := range workers {
			workers[i].WorkerState = api.WorkerState{Worker: api.WorkerName(fmt.Sprint(pool), i), State: lifecycle.Ready}
			if i >= len(workers)-down {
				workers[i].State = lifecycle.Starting
			}
		}
		views = append(views, api.PoolWorkers{Workers: workers})
	}
	AskOutOfService(t.Context(), views, func(context.Context, string, int) (api.WorkerState, error) {
		return api.WorkerState{State: lifecycle.Pending}, nil
	})
	for pool, want := range []int{63, 1} {
		answered := 0
		for _, w := range views[pool].Workers {
			if w.State == lifecycle.Pending {
				answered++
			}
		}
		require.Equal(t, want, answered)
	}
}

func TestARosterHasTheFiguresOfEveryLiveProcess(t *testing.T) {
	report := api.ProcessReport{
		Process: api.Process{Worker: "p/0", Incarnation: 2}, Sample: &api.Sample{MemoryBytes: 5},
		Usage: api.Usage{Requests: 4, TotalMS: 8}, UptimeMS: 3000,
	}
	for _, state := range lifecycle.States() {
		status := api.PoolStatus{Pool: "p", Size: 1, Workers: []api.RosterEntry{{State: state, Incarnation: 2}}}
		w := RosterOf(status, reportOf(report)).Workers[0]
		if !state.Live() {
			require.Zero(t, w.CurrentMemoryBytes, "the last heartbeat is older than the end of the process (%s)", state)
			continue
		}
		require.EqualValues(t, 5, w.CurrentMemoryBytes, state)
		require.EqualValues(t, 4, w.RequestsServed, state)
		require.InDelta(t, 3, w.UptimeS, 0, state)
	}
}

// TestAWorkerWhoseWorkflowHasEndedIsNotReady: its pool does not count it either.
func TestAWorkerWhoseWorkflowHasEndedIsNotReady(t *testing.T) {
	view := RosterOf(api.PoolStatus{Pool: "p", Size: 2, Workers: []api.RosterEntry{{State: lifecycle.Ready},
		{Slot: 1, State: lifecycle.Ready, Gone: true, Reason: "worker workflow closed: terminated"}}}, Reports{})
	require.Equal(t, 1, view.Ready)
	require.Equal(t, lifecycle.Failed, view.Workers[1].State)
}

func TestTheLastMinuteOfAPoolIsThatOfAllHostsOfItsWorkers(t *testing.T) {
	hosts := map[string]api.HostHeartbeat{
		"a": {Figures: map[string]api.Figures{"p": {Seconds: 60, Calls: 60, Serving: api.Times{{1024, 60}}}},
			MCPSessions: map[string]int{"p": 2}},
		"b": {MCPSessions: map[string]int{"p": 3, "q": 1}},
		"c": {Figures: map[string]api.Figures{"p": {Seconds: 50, Calls: 60,
			Errors: api.Counts{{Name: "worker_error", Count: 6}}}}},
		"d": {Figures: map[string]api.Figures{"p": {Seconds: 60, Calls: 1000}}},
	}
	var reports Reports
	for id, heartbeat := range hosts {
		reports.Add(id, heartbeat)
	}
	status := api.PoolStatus{Pool: "p", Workers: []api.RosterEntry{{Host: "a"}, {Host: "b"}, {Host: "c"}, {Host: "a"}}}
	view := RosterOf(status, reports)
	require.InDelta(t, 2, view.LastMinute.CallsPerSecond, 1e-9)
	require.Equal(t, map[string]float64{"worker_error": 0.1}, view.LastMinute.ErrorsPerSecond)
	require.InEpsilon(t, 1.28, view.LastMinute.ServingMS.P99, 0.01)
	require.Equal(t, 5, view.MCPSessions)
	other := RosterOf(api.PoolStatus{Pool: "q", Workers: status.Workers}, reports)
	require.Nil(t, other.LastMinute)
	require.Equal(t, 1, other.MCPSessions)
}

func TestAHeartbeatIsDecodedOnce(t *testing.T) {
	var known beats
	decodes := 0
	read := func(host string, at time.Time) api.HostHeartbeat {
		v, err := known.decoded(host, at, func() (api.HostHeartbeat, error) {
			decodes++
			return api.HostHeartbeat{At: at, Processes: []api.ProcessReport{{InFlight: decodes}}}, nil
		})
		require.NoError(t, err)
		return v
	}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	read("a", noon).Processes[0].InFlight = 7
	require.Equal(t, 1, read("a", noon).Processes[0].InFlight, "what a caller changes is its own")
	require.Equal(t, 2, read("a", noon.Add(time.Second)).Processes[0].InFlight)
	require.Equal(t, 3, read("b", noon).Processes[0].InFlight)
	require.Equal(t, 2, read("a", noon.Add(time.Second)).Processes[0].InFlight)
	_, err := known.decoded("a", noon, func() (api.HostHeartbeat, error) { return api.HostHeartbeat{}, errors.New("no") })
	require.Error(t, err)
	known.of["b"] = beat{}
	read("a", time.Unix(0, 0))
	read("a", time.Unix(0, 0))
	require.Equal(t, 5, decodes, "nobody says whether it is another one")
	require.Len(t, known.of, 1, "nobody asks for that of b")
}
