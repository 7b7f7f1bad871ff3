package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// observedHost is a host, and what it reports and announces of p/1.
type observedHost struct {
	*activities.Host
	request   api.StartRequest
	t         *testing.T
	reported  chan api.ProcessEvent
	announced chan api.StartedProcess
	stopping  chan struct{}
}

func newObservedHost(t *testing.T) *observedHost {
	h, r := sleepingHost(t)
	r.RunID, r.Spec.Health.Interval = "first-run", spec.Duration(time.Hour)
	o := observe(t, h, r)
	h.Stopping = o.stopping
	h.Announce = func(_ string, p api.StartedProcess) { o.announced <- p }
	return o
}

// observe keeps what a host reports of the process that is requested.
func observe(t *testing.T, h *activities.Host, r api.StartRequest) *observedHost {
	o := &observedHost{h, r, t, make(chan api.ProcessEvent, 100), make(chan api.StartedProcess, 100), make(chan struct{})}
	h.Notify = func(worker, runID string, e api.ProcessEvent) {
		require.Equal(t, "p/1", worker)
		require.Equal(t, "first-run", runID)
		o.reported <- e
	}
	return o
}

// start starts the requested incarnation of p/1.
func (o *observedHost) start() *process.Process {
	o.t.Helper()
	_, err := executeStart(o.Host, o.request)
	require.NoError(o.t, err)
	p, known := o.Processes.Get("p/1", o.request.Incarnation)
	require.True(o.t, known)
	return p
}

func (o *observedHost) next() api.ProcessEvent {
	o.t.Helper()
	select {
	case e := <-o.reported:
		require.EqualValues(o.t, o.request.Incarnation, e.Incarnation)
		return e
	case <-time.After(waitTimeout):
		o.t.Fatal("nothing was reported")
		return api.ProcessEvent{}
	}
}

func TestAHostReportsTheExitOfAProcessAndForgetsTheProcess(t *testing.T) {
	o := newObservedHost(t)
	p := o.start()
	_, err := o.Probe(t.Context(), api.WatchRequest{Process: o.request.Process})
	require.NoError(t, err)
	require.NotNil(t, o.Assessment("p/1", 3))
	_, err = p.Stop(t.Context(), time.Nanosecond)
	require.NoError(t, err)
	e := o.next()
	require.Equal(t, api.WatchExited, e.Event)
	require.NotNil(t, e.Exit)
	require.NotNil(t, e.Usage)
	o.WaitMonitors()
	require.Empty(t, o.Heartbeat().Processes)
	require.Eventually(t, func() bool { return o.Assessment("p/1", 3) == nil }, waitTimeout, 10*time.Millisecond)
}

func TestAHostReportsThatADegradedWorkerHasPassedAProbe(t *testing.T) {
	o := newObservedHost(t)
	o.request.Spec.Health.Interval = spec.Duration(50 * time.Millisecond)
	p := o.start()
	_, err := o.Watch(t.Context(),
		api.WatchRequest{Process: o.request.Process, Health: p.Spec().Health, Probe: true, Failures: 1})
	require.NoError(t, err)
	require.Equal(t, api.WatchProbePassed, o.next().Event, "the result of a degraded worker's probe is reported")
}

// A connection breaks before the exit of its process is known, and a process whose tree is being killed has exited long
// before it has ended.
func TestACheckThatTheEndOfTheProcessCutsSaysNothingAboutItsHealth(t *testing.T) {
	o := newObservedHost(t)
	o.request.Spec.Pool.Protocol, o.request.Spec.Pool.Framing = spec.ProtocolJSONRPC, "line"
	o.request.Spec.Health.Kind, o.request.Spec.Health.Command = spec.HealthRPC, nil
	o.request.Spec.Pool.Command = []string{"sh", "-c", "read ping; exec >&-; exec sleep 1000"}
	o.start()
	checkpoint, err := o.Probe(t.Context(), api.WatchRequest{Process: o.request.Process})
	require.NoError(t, err)
	require.NotContains(t, []api.WatchEvent{api.WatchProbeFailed, api.WatchProbePassed}, checkpoint.Event)
	require.Equal(t, api.WatchExited, o.next().Event)

	o.request.Spec.Health.Interval = spec.Duration(50 * time.Millisecond)
	o.request.Incarnation = 4
	o.start()
	require.Equal(t, api.WatchExited, o.next().Event, "a periodic check says nothing either")
}

func TestAHostReportsOnceThatItStops(t *testing.T) {
	o := newObservedHost(t)
	o.start()
	close(o.stopping)
	require.Equal(t, api.WatchShutdown, o.next().Event)
}

func TestAHostReportsOnceThatAProcessExceedsItsRules(t *testing.T) {
	o := newObservedHost(t)
	p := o.start()
	_, err := o.Watch(t.Context(), api.WatchRequest{Process: o.request.Process, Health: p.Spec().Health,
		Rules: api.WatchRules{MaxMemoryBytes: 1}})
	require.NoError(t, err)
	e := o.next()
	require.Equal(t, api.WatchReplace, e.Event)
	require.Equal(t, api.CauseMemory, e.Cause)
	_, err = p.Stop(t.Context(), time.Nanosecond)
	require.NoError(t, err)
	require.Equal(t, api.WatchExited, o.next().Event, "no second finding came between")
}

func TestAHostAnnouncesAStart(t *testing.T) {
	o := newObservedHost(t)
	o.request.Announce = &api.Announce{Reason: "on request", SpecVersion: 2, Starts: 4}
	o.start()
	starting, ready := <-o.announced, <-o.announced
	require.Equal(t, lifecycle.Starting, starting.State)
	require.Equal(t, "on request", starting.Reason, "the worker's own, which its state has")
	require.Contains(t, ready.Reason, "ready")
	require.Equal(t, lifecycle.Ready, ready.State)
	require.EqualValues(t, 3, ready.Incarnation)
	require.EqualValues(t, 5, ready.Starts)
	require.Positive(t, ready.PID)
	require.Equal(t, "first-run", ready.RunID)
}

func TestWatchReportsAProcessThatTheHostDoesNotHave(t *testing.T) {
	o := newObservedHost(t)
	result, err := o.Watch(t.Context(), api.WatchRequest{Process: unknown})
	require.NoError(t, err)
	require.Equal(t, api.WatchUnknown, result.Event)
}
