package tempool

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// rosterOf is a fleet whose roster is what read says, and whose clock stands until the test moves it.
func rosterOf(t *testing.T, read func(context.Context) (api.PoolStatus, error)) (f *balancer, forward func(time.Duration)) {
	var mu sync.Mutex
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	f = &balancer{
		read:  read,
		begin: func(do func(context.Context)) bool { work.Go(func() { do(t.Context()) }); return true },
		now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		},
	}
	return f, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
}

func rosterAt(endpoints ...string) api.PoolStatus {
	var s api.PoolStatus
	for i, endpoint := range endpoints {
		s.Workers = append(s.Workers, api.RosterEntry{Slot: i, State: lifecycle.Ready, Endpoint: endpoint})
	}
	return s
}

// takeOne is where a call would go now.
func takeOne(t *testing.T, f *balancer) string {
	l, err := f.acquire(t.Context(), nil)
	require.NoError(t, err)
	f.release(l, nil)
	return l.endpoint
}

func TestTheRosterIsReadOnceForManyCallsAndAgainBehindTheirBack(t *testing.T) {
	var reads atomic.Int64
	f, forward := rosterOf(t, func(context.Context) (api.PoolStatus, error) {
		if reads.Add(1) == 1 {
			return rosterAt("old"), nil
		}
		return rosterAt("new"), nil
	})
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() { _ = takeOne(t, f) })
	}
	calls.Wait()
	require.EqualValues(t, 1, reads.Load())
	forward(rosterFresh + time.Millisecond)
	require.Eventually(t, func() bool { return takeOne(t, f) == "new" }, patience, tick)
	require.EqualValues(t, 2, reads.Load())
	require.NoError(t, f.refresh(t.Context()))
	require.EqualValues(t, 2, reads.Load(), "it was read just now")
	forward(rosterPause + time.Millisecond)
	require.NoError(t, f.refresh(t.Context()))
	require.EqualValues(t, 3, reads.Load())
}

func TestWhileTemporalIsDownTheGatewaysThatAreKnownStay(t *testing.T) {
	var down atomic.Bool
	var reads atomic.Int64
	f, forward := rosterOf(t, func(context.Context) (api.PoolStatus, error) {
		reads.Add(1)
		if down.Load() {
			return api.PoolStatus{}, api.ErrUnavailable
		}
		return rosterAt("a"), nil
	})
	require.Equal(t, "a", takeOne(t, f))
	down.Store(true)
	for i := range int64(3) {
		forward(rosterFresh + time.Millisecond)
		require.Equal(t, "a", takeOne(t, f))
		require.Eventually(t, func() bool { return reads.Load() == 2+i }, patience, tick)
		require.NoError(t, f.refresh(t.Context()))
	}
}

func TestAPoolThatCannotBeFoundOutIsAFailureOfTheCall(t *testing.T) {
	why := error(api.ErrUnavailable)
	f, forward := rosterOf(t, func(context.Context) (api.PoolStatus, error) { return rosterAt(), why })
	_, err := f.acquire(t.Context(), nil)
	require.ErrorIs(t, err, api.ErrUnavailable)
	why = api.ErrPoolNotFound
	forward(time.Hour)
	_, err = f.acquire(t.Context(), nil)
	require.ErrorIs(t, err, api.ErrPoolNotFound)
	why = nil
	forward(time.Hour)
	_, err = f.acquire(t.Context(), nil)
	require.ErrorIs(t, err, api.ErrNoWorkers)
}

func TestACallDoesNotWaitForTheRosterBeyondItsTime(t *testing.T) {
	f, _ := rosterOf(t, func(ctx context.Context) (api.PoolStatus, error) {
		<-ctx.Done()
		return api.PoolStatus{}, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := f.acquire(ctx, nil)
	require.ErrorIs(t, err, api.ErrDeadlineExceeded)
	require.False(t, mayHaveStarted(err))
}

func TestWhatACallsEndTellsOfItsGateway(t *testing.T) {
	unavailable := api.Errorf(api.CodeUnavailable, "it broke off")
	unavailable.Started = true
	for name, c := range map[string]struct {
		err   error
		rests bool
		known bool
	}{
		"an answer":                             {nil, false, true},
		"a worker's error":                      {&api.Error{Code: api.CodeWorkerError, Started: true}, false, true},
		"the gateway says that time is over":    {&api.Error{Code: api.CodeDeadlineExceeded}, false, true},
		"nobody there":                          {api.Errorf(api.CodeUnavailable, "refused"), true, true},
		"it broke off":                          {unavailable, true, true},
		"no connection in time":                 {api.Errorf(api.CodeDeadlineExceeded, "late: %w", context.DeadlineExceeded), true, true},
		"the caller's time was over in mid-way": {&api.Error{Code: api.CodeDeadlineExceeded, Started: true, Err: context.DeadlineExceeded}, false, false},
		"the caller went away":                  {api.Errorf(api.CodeCancelled, "gone: %w", context.Canceled), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixedBalancer([]string{"a"})
			l, err := f.acquire(t.Context(), nil)
			require.NoError(t, err)
			l.failures = 1
			f.release(l, c.err)
			require.Zero(t, l.inFlight)
			require.Equal(t, c.rests, !l.backoffUntil.IsZero())
			switch {
			case c.rests:
				require.Equal(t, 2, l.failures)
			case c.known:
				require.Zero(t, l.failures)
			default:
				require.Equal(t, 1, l.failures)
			}
		})
	}
}
