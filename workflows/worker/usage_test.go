package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func used(requests, failed, ms int64) *api.Usage {
	return &api.Usage{Requests: requests, Failed: failed, TotalMS: ms}
}

func TestWhatACrashedProcessHadServedIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		sent, seen *api.Usage
		want       api.Usage
	}{
		"nothing was sent before":           {used(0, 0, 0), used(10, 2, 100), *used(10, 2, 100)},
		"part was sent by a checkin before": {used(3, 1, 30), used(10, 2, 100), *used(10, 2, 100)},
		"all was sent":                      {used(10, 2, 100), used(10, 2, 100), *used(10, 2, 100)},
		"calls past the gateway were sent":  {used(12, 1, 90), used(4, 2, 100), *used(12, 2, 100)},
		"the host says nothing":             {used(3, 1, 30), nil, *used(3, 1, 30)},
	} {
		t.Run(name, func(t *testing.T) {
			throughRuns(t, []int{0, 1, 3}, func(t *testing.T, s *workerEnv) {
				f := crash(10 * time.Second)
				f.result.Usage = c.seen
				s.watchScript[1] = f
				s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
				s.At(2*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1", Usage: *c.sent}))
				s.At(3*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
				// too late
				s.At(20*time.Second, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.2", Usage: *used(7, 1, 70)}))
				s.At(21*time.Second, func() {
					m := s.metrics()
					require.Equal(t, c.want, api.Usage{Requests: m.RequestsServed, Failed: m.RequestsFailed,
						TotalMS: m.TotalCallTimeMS})
					require.EqualValues(t, 2, s.state().Incarnation)
				})
				s.runThrough(standalone())
			})
		})
	}
}

func TestWhatAStoppedProcessHadServedIsCountedOnce(t *testing.T) {
	s := newWorkerEnv(t)
	s.onProbe = func(r api.WatchRequest) (api.WatchResult, error) {
		seen := used(5, 0, 50)
		if r.Incarnation > 1 {
			seen = used(1, 0, 5)
		}
		return api.WatchResult{Event: api.WatchProbePassed, Usage: seen}, nil
	}
	s.onStop = func(r api.StopRequest) (api.StopResult, error) {
		seen := used(0, 0, 0)
		if r.Incarnation == 1 {
			seen = used(7, 2, 80) // two calls were cut with the process
		}
		return api.StopResult{Exit: lifecycle.Exit{Interrupted: true}, Usage: seen}, nil
	}
	run := standalone()
	s.slow = map[string]time.Duration{api.ActivityDrain: time.Minute}
	half := run.Spec.Health.Checkpoint.D() / 2
	// calls of the pool, without a lease
	s.At(3*half, func() { require.EqualValues(t, 5, s.metrics().RequestsServed) })
	// the next one takes over beside it
	s.At(3*half+time.Second, s.signal(api.SignalRestart, api.Order{Reason: "to see"}))
	s.At(3*half+30*time.Second, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.EqualValues(t, 5, s.metrics().RequestsServed, "while the old one drains")
	})
	s.At(3*half+2*time.Minute, func() {
		require.EqualValues(t, 7, s.metrics().RequestsServed)
		require.EqualValues(t, 2, s.metrics().RequestsFailed)
	})
	s.runThrough(run)
	require.EqualValues(t, 7, s.metrics().RequestsServed)
}

func TestTheLastReportOfALostAgentCounts(t *testing.T) {
	t.Run("what it brings", func(t *testing.T) { lastReport(t, used(3, 1, 30), 4) })
	t.Run("not what is older", func(t *testing.T) { lastReport(t, used(6, 1, 60), 6) })
}

// lastReport has a host observe usage, and its agent end, of which four requests had been reported.
func lastReport(t *testing.T, seen *api.Usage, served int64) {
	s := newWorkerEnv(t)
	s.At(30*time.Second, s.signal(api.SignalProcessEvents,
		observed(api.WatchResult{Event: api.WatchProbePassed, Usage: seen})))
	s.At(time.Second, s.signal(api.SignalEpochEnded, api.EpochEnded{Host: "other", Epoch: 9, Reason: "not here"}))
	s.At(time.Minute, s.signal(api.SignalEpochEnded,
		api.EpochEnded{Host: "h", Epoch: 3, Reason: "host h lost",
			Used: []api.ProcessUsage{usageOf(1, used(4, 1, 40))}}))
	s.At(2*time.Minute, func() {
		require.EqualValues(t, 2, s.state().Incarnation)
		require.Contains(t, reasons(s.history()), "host h lost")
		require.EqualValues(t, served, s.metrics().RequestsServed)
		require.EqualValues(t, 1, s.metrics().RequestsFailed)
	})
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		return api.StartResult{Host: "h", Epoch: 2 + r.Incarnation}, nil
	}
	s.runThrough(standalone())
}

// usageOf is what an agent has reported of an incarnation.
func usageOf(incarnation int64, u *api.Usage) api.ProcessUsage {
	return api.ProcessUsage{Process: api.Process{Worker: "t/0", Incarnation: incarnation}, Usage: *u}
}
