package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

func TestTheSeriesOfBackoffsIsThatOfThePolicyAndGoodLifeResetsIt(t *testing.T) {
	s := newWorkerEnv(t)
	var began []time.Time
	s.onStart = func(r api.StartRequest) (api.StartResult, error) {
		began = append(began, s.env.Now())
		return api.StartResult{Host: "h", PID: 1000 + int(r.Incarnation), TookMS: 1}, nil
	}
	for i := int64(1); i <= 6; i++ {
		s.watchScript[i] = crash(10 * time.Millisecond)
	}
	s.watchScript[7] = crash(2 * time.Minute) // longer than healthy_reset
	s.At(10*time.Minute, s.cancel)
	s.run(standalone())
	require.Len(t, began, 8)
	waits := []float64{0, 0.1, 0.3, 0.9, 2.7, 8.1, 120}
	for i, want := range waits {
		require.InDelta(t, want, began[i+1].Sub(began[i]).Seconds(), 0.1*want+0.1, "wait %d", i+1)
	}
}

func TestAHealthyLifeResetsTheCountOfFailuresHoweverItEnds(t *testing.T) {
	s := newWorkerEnv(t)
	for i := int64(1); i <= 5; i++ {
		s.watchScript[i] = crash(10 * time.Millisecond)
	}
	s.watchScript[6] = finding(2*time.Minute, api.CauseUptime, "up for 2m")
	s.watchScript[7] = crash(10 * time.Second)
	s.At(30*time.Second, func() { require.Equal(t, 5, s.metrics().ConsecutiveFailures) })
	s.At(100*time.Second, func() { require.Zero(t, s.metrics().ConsecutiveFailures, "healthy for healthy_reset") })
	s.At(160*time.Second, func() {
		s.ready(8)
		require.Equal(t, 1, s.metrics().ConsecutiveFailures)
	})
	s.runThrough(standalone())
}

func TestACrashIsFollowedByTheNextIncarnationAndALeaseEndsWithIt(t *testing.T) {
	s := newWorkerEnv(t)
	s.watchScript[1] = crash(10 * time.Second)
	s.At(5*time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: "me"}))
	s.At(20*time.Second, func() {
		st := s.ready(2)
		require.Nil(t, st.Lease)
		require.Equal(t, 1, s.metrics().ConsecutiveFailures)
	})
	s.runThrough(standalone())
	require.Equal(t, []lifecycle.EventKind{
		lifecycle.Start, lifecycle.StartSucceeded, lifecycle.Checkout, lifecycle.Exited, lifecycle.Start,
		lifecycle.StartSucceeded,
	}, s.events()[:6])
}

func TestAProgramThatAlwaysCrashesBacksOffAndIsGivenUpUntilSomebodyRestartsIt(t *testing.T) {
	s := newWorkerEnv(t)
	for i := range int64(30) {
		s.watchScript[i+1] = crash(time.Millisecond)
	}
	var given int
	s.At(2*time.Hour, func() {
		st := s.state()
		require.Equal(t, lifecycle.Failed, st.State)
		require.Contains(t, st.Reason, "SIGKILL")
		given = s.counted(&s.starts)
		s.dropWatchScript(st.Incarnation + 1)
		s.signal(api.SignalRestart, api.Order{Reason: "fixed it", By: "me"})()
	})
	s.At(2*time.Hour+time.Minute, func() { require.Equal(t, lifecycle.Ready, s.state().State) })
	s.runThrough(standalone())
	limit := workflowtest.Spec().Recovery.MaxConsecutiveFailures
	require.InDelta(t, limit, given, 1, "started no more often than the limit allows")
}
