package balance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
	"github.com/tempool/tempool/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// testTimeout bounds every wait; only a failing test waits that long.
	testTimeout = 2 * time.Minute
	pollEvery   = 2 * time.Millisecond
)

// newBalancer returns a Balancer with a clock that stands still until the test calls advance.
func newBalancer(t *testing.T,
	read func(context.Context) (api.PoolStatus, error)) (b *Balancer, advance func(time.Duration)) {
	var mu sync.Mutex
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	b = New(read, func(do func(context.Context)) error {
		work.Go(func() { do(t.Context()) })
		return nil
	})
	b.now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	return b, func(d time.Duration) {
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

// choose returns where a call goes now.
func choose(t *testing.T, b *Balancer) string {
	e, err := b.Acquire(t.Context(), nil)
	require.NoError(t, err)
	b.Release(e, nil)
	return e.URL()
}

func TestConcurrentCallsReadTheRosterOnceAndRefreshItInTheBackground(t *testing.T) {
	var reads atomic.Int64
	b, advance := newBalancer(t, func(context.Context) (api.PoolStatus, error) {
		if reads.Add(1) == 1 {
			return rosterAt("old"), nil
		}
		return rosterAt("new"), nil
	})
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() { _ = choose(t, b) })
	}
	calls.Wait()
	require.EqualValues(t, 1, reads.Load())
	advance(rosterMaxAge + time.Millisecond)
	require.Eventually(t, func() bool { return choose(t, b) == "new" }, testTimeout, pollEvery)
	require.EqualValues(t, 2, reads.Load())
	require.NoError(t, b.Refresh(t.Context()))
	require.EqualValues(t, 2, reads.Load(), "the last refresh is too recent")
	advance(rosterMinInterval + time.Millisecond)
	require.NoError(t, b.Refresh(t.Context()))
	require.EqualValues(t, 3, reads.Load())
}

func TestKnownGatewaysStayInUseWhileTemporalIsDown(t *testing.T) {
	var down atomic.Bool
	var reads atomic.Int64
	b, advance := newBalancer(t, func(context.Context) (api.PoolStatus, error) {
		reads.Add(1)
		if down.Load() {
			return api.PoolStatus{}, api.ErrUnavailable
		}
		return rosterAt("a"), nil
	})
	require.Equal(t, "a", choose(t, b))
	down.Store(true)
	for i := range int64(3) {
		advance(rosterMaxAge + time.Millisecond)
		require.Equal(t, "a", choose(t, b))
		require.Eventually(t, func() bool { return reads.Load() == 2+i }, testTimeout, pollEvery)
		require.NoError(t, b.Refresh(t.Context()))
	}
}

func TestAnUnreadableRosterFailsTheCall(t *testing.T) {
	why := error(api.ErrUnavailable)
	b, advance := newBalancer(t, func(context.Context) (api.PoolStatus, error) { return rosterAt(), why })
	_, err := b.Acquire(t.Context(), nil)
	require.ErrorIs(t, err, api.ErrUnavailable)
	why = api.ErrPoolNotFound
	advance(time.Hour)
	_, err = b.Acquire(t.Context(), nil)
	require.ErrorIs(t, err, api.ErrPoolNotFound)
	why = nil
	advance(time.Hour)
	_, err = b.Acquire(t.Context(), nil)
	require.ErrorIs(t, err, api.ErrNoWorkers)
}

func TestWaitingForTheRosterEndsAtTheDeadline(t *testing.T) {
	b, _ := newBalancer(t, func(ctx context.Context) (api.PoolStatus, error) {
		<-ctx.Done()
		return api.PoolStatus{}, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, nil)
	require.ErrorIs(t, err, api.ErrDeadlineExceeded)
	require.False(t, transport.MayHaveStarted(err))
}

func TestAFailedCallBacksOffOnlyAnUnreachableGateway(t *testing.T) {
	unavailable := api.Errorf(api.CodeUnavailable, "connection lost")
	unavailable.Started = true
	for name, c := range map[string]struct {
		err      error
		backsOff bool
		known    bool
	}{
		"an answer":                     {nil, false, true},
		"a worker's error":              {&api.Error{Code: api.CodeWorkerError, Started: true}, false, true},
		"the gateway reports a timeout": {&api.Error{Code: api.CodeDeadlineExceeded}, false, true},
		"connection refused":            {api.Errorf(api.CodeUnavailable, "refused"), true, true},
		"connection lost":               {unavailable, true, true},
		"no connection before the deadline": {api.Errorf(api.CodeDeadlineExceeded, "late: %w", context.DeadlineExceeded),
			true, true},
		"the deadline passed during the call": {&api.Error{Code: api.CodeDeadlineExceeded, Started: true,
			Err: context.DeadlineExceeded}, false, false},
		"the caller cancelled": {api.Errorf(api.CodeCancelled, "gone: %w", context.Canceled), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewFixed([]string{"a"})
			e, err := b.Acquire(t.Context(), nil)
			require.NoError(t, err)
			e.backoff.failures = 1
			b.Release(e, c.err)
			require.Zero(t, e.inFlight)
			require.Equal(t, c.backsOff, !e.backoff.until.IsZero())
			switch {
			case c.backsOff:
				require.Equal(t, 2, e.backoff.failures)
			case c.known:
				require.Zero(t, e.backoff.failures)
			default:
				require.Equal(t, 1, e.backoff.failures)
			}
		})
	}
}

func TestCallsAreSpreadByWorkersAndCallsInFlight(t *testing.T) {
	now := time.Now()
	one, three := &Endpoint{url: "one", workers: 1}, &Endpoint{url: "three", workers: 3}
	counts := map[string]int{}
	for range 400 {
		e := pick([]*Endpoint{one, three}, nil, now)
		e.inFlight++
		counts[e.url]++
	}
	require.InDelta(t, 100, counts["one"], 2)
	one.inFlight, three.inFlight = 0, 0
	clear(counts)
	for range 4000 { // calls one after the other
		counts[pick([]*Endpoint{one, three}, nil, now).url]++
	}
	require.InDelta(t, 1000, counts["one"], 250)
	one.backoff.Fail(now)
	require.Equal(t, three, pick([]*Endpoint{one, three}, nil, now))
	require.Equal(t, one, pick([]*Endpoint{one, three}, map[string]bool{"three": true}, now),
		"a gateway in backoff is better than none")
	require.Nil(t, pick([]*Endpoint{one}, map[string]bool{"one": true}, now))
	for range 20 {
		one.backoff.Fail(now)
	}
	require.Equal(t, now.Add(maxBackoff), one.backoff.until)
	one.backoff = Backoff{}
	require.Equal(t, one, pick([]*Endpoint{one, {url: "busy", workers: 1, inFlight: 1}}, nil, now))
}

func TestTheRosterDeterminesTheEndpoints(t *testing.T) {
	at := func(endpoint string, state string) api.RosterEntry {
		var e api.RosterEntry
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"endpoint":%q,"state":%q}`, endpoint, state), &e))
		return e
	}
	old := &Endpoint{url: "a", workers: 9, inFlight: 4}
	endpoints := fromRoster([]api.RosterEntry{at("a", "ready"), at("b", "busy"), at("a", "busy"), at("c", "failed"),
		at("", "ready")}, []*Endpoint{old})
	require.Len(t, endpoints, 2)
	require.Same(t, old, endpoints[0], "calls in flight stay counted")
	require.Equal(t, 2, endpoints[0].workers)
	require.Equal(t, Endpoint{url: "b", workers: 1}, *endpoints[1])
	gone := at("d", "stopped")
	gone.Gone = true
	endpoints = fromRoster([]api.RosterEntry{at("c", "failed"), at("c", "starting"), gone}, nil)
	require.Equal(t, []*Endpoint{{url: "c", workers: 2}}, endpoints,
		"without workers in service, those that may come back")
	require.Empty(t, fromRoster([]api.RosterEntry{at("", "pending")}, nil))
}

func TestReferredGatewaysAreAddedOnceAndOnlyWithoutARoster(t *testing.T) {
	b := NewFixed([]string{"a"})
	urls := func() (urls []string) {
		for _, e := range b.endpoints {
			urls = append(urls, e.URL())
		}
		return urls
	}
	for range 2 {
		b.Add([]string{"b", "a", "", "b"})
		require.Equal(t, []string{"a", "b"}, urls())
		for range 4 { // calls to both that cannot be reached
			for _, e := range slices.Clone(b.endpoints) {
				e.inFlight++
				b.Release(e, api.ErrUnavailable)
			}
		}
		require.Equal(t, []string{"a", "b"}, urls(), "nobody could refer to it again")
		for _, e := range b.endpoints {
			e.backoff = Backoff{}
		}
		for i := range 3 {
			require.Len(t, b.endpoints, 2, "after %d failures", i)
			b.endpoints[1].inFlight++
			b.Release(b.endpoints[1], api.ErrUnavailable)
		}
		require.Equal(t, []string{"a"}, urls(), "it may be referred to again")
	}

	b = New(func(context.Context) (api.PoolStatus, error) { return api.PoolStatus{}, nil }, nil)
	b.Add([]string{"b"})
	require.Empty(t, b.endpoints)
}
