package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process/wire"
)

func TestAQueueGivesOutByPriorityAndThenInOrder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		q := newQueue()
		var model []*waiter // in the order of their coming
		for range 200 {
			switch n := random.IntN(10); {
			case n < 5:
				w := newWaiter(nil, "", random.IntN(MaxPriority+1))
				q.Push(w)
				model = append(model, w)
			case n < 8:
				got := q.Pop()
				if len(model) == 0 {
					require.Nil(t, got)
					continue
				}
				want := 0
				for i, w := range model {
					if w.priority > model[want].priority {
						want = i
					}
				}
				require.Same(t, model[want], got)
				require.False(t, q.Remove(got), "it is out already")
				model = slices.Delete(model, want, want+1)
			case len(model) > 0:
				i := random.IntN(len(model))
				require.True(t, q.Remove(model[i]))
				require.False(t, q.Remove(model[i]))
				model = slices.Delete(model, i, i+1)
			}
			require.Equal(t, len(model), q.Len())
			require.Equal(t, len(model) == 0, q.Peek() == nil)
		}
	}
}

func TestAPickPrefersTheLeastBusyThenTheFittestThenTakesTurns(t *testing.T) {
	plain := candidate{score: 100, inFlight: 1, turn: 5}
	for name, change := range map[string]func(*candidate){
		"fewer calls in flight":           func(c *candidate) { c.inFlight, c.score, c.turn = 0, 0, 9 },
		"it has had fewer calls":          func(c *candidate) { c.turn = 4 },
		"a small lead in score is no use": func(c *candidate) { c.turn, c.score = 4, 81 },
	} {
		t.Run(name, func(t *testing.T) {
			other := plain
			change(&other)
			require.True(t, better(other, plain))
			require.False(t, better(plain, other))
		})
	}
	worse := plain
	worse.score, worse.turn = 79, 1
	require.True(t, better(plain, worse), "a grade's difference counts more than whose turn it is")
	require.False(t, better(plain, plain))
}

func TestASessionsWorkerIsPreferredUntilItIsFarAheadOfOthersUnderLoad(t *testing.T) {
	best := candidate{turn: 5}
	require.True(t, sticks(candidate{inFlight: 3, turn: 5 + sessionLead}, best, 2, 4))
	require.False(t, sticks(candidate{turn: 6 + sessionLead}, best, 2, 4))
	require.True(t, sticks(candidate{turn: 500}, best, 1, 4), "where few are busy, nothing has to be spread")
}

func TestAWorkerThatWasAwayCatchesUpWithALittleAlone(t *testing.T) {
	d := &desk{turn: 1000}
	require.EqualValues(t, 990, d.turnOf(&seat{turn: 990}))
	require.EqualValues(t, 1000-catchUp, d.turnOf(&seat{turn: 3}))
}

func TestAWorkersNextProcessTakesTheTurnOfTheLast(t *testing.T) {
	d := &desk{turn: 1000}
	require.EqualValues(t, 990, d.turnAfter(&seat{turn: 990}))
	require.EqualValues(t, 1000, d.turnAfter(nil), "who comes new has nothing to catch up with")
}

func TestNoMinuteSeesMoreCallsThanItsLimit(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		limit := 1 + random.IntN(20)
		w := newWindow(limit)
		now := time.Unix(1_700_000_000, 0).Add(time.Duration(random.IntN(1e9)))
		var begun []time.Time
		for range 2000 {
			now = now.Add(time.Duration(random.Int64N(int64(6 * time.Second))))
			full, wait := w.full(now)
			if full {
				require.Positive(t, wait)
				require.LessOrEqual(t, wait, 61*time.Second)
				stillFull, _ := w.full(now.Add(wait))
				require.False(t, stillFull, "the wait it names is enough")
				w = replay(limit, begun, now) // asking about the future moved the window on
				continue
			}
			w.add()
			begun = append(begun, now)
			recent := 0
			for _, at := range begun {
				if now.Sub(at) < time.Minute {
					recent++
				}
			}
			require.LessOrEqual(t, recent, limit)
		}
		require.NotEmpty(t, begun)
	}
}

func replay(limit int, begun []time.Time, now time.Time) *window {
	w := newWindow(limit)
	for _, at := range begun {
		w.advance(at)
		w.add()
	}
	w.advance(now)
	return w
}

func TestALongPauseForgetsAllCalls(t *testing.T) {
	w := newWindow(1)
	now := time.Unix(1_700_000_000, 0)
	w.advance(now)
	w.add()
	full, wait := w.full(now)
	require.True(t, full)
	require.Equal(t, 61*time.Second, wait)
	full, _ = w.full(now.Add(time.Hour))
	require.False(t, full)
}

func TestWhatAWorkflowSaysAboutALease(t *testing.T) {
	ref := api.LeaseRef{Pool: "p", Slot: 0, Incarnation: 2, Seq: 5}
	id := "p.0.2.5"
	for name, c := range map[string]struct {
		state api.WorkerState
		code  api.Code
	}{
		"it is out":            {api.WorkerState{LeaseSeq: 5, Lease: &api.Lease{ID: id}}, ""},
		"a newer one is out":   {api.WorkerState{LeaseSeq: 6, Lease: &api.Lease{ID: "p.0.2.6"}}, api.CodeLeaseFenced},
		"it was given back":    {api.WorkerState{LeaseSeq: 5}, api.CodeLeaseFenced},
		"it was never granted": {api.WorkerState{LeaseSeq: 4}, api.CodeLeaseNotFound},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.code, api.CodeOf(confirm(id, ref, c.state))) })
	}
}

func TestWhetherAPoolMayGetAWorkerHere(t *testing.T) {
	for name, c := range map[string]struct {
		workers []api.RosterEntry
		hope    bool
	}{
		"none at all":                   {nil, false},
		"one here":                      {[]api.RosterEntry{{State: lifecycle.Ready, Host: "here"}}, true},
		"all elsewhere":                 {[]api.RosterEntry{{State: lifecycle.Ready, Host: "there"}, {State: lifecycle.Busy, Host: "there"}}, false},
		"one not placed yet":            {[]api.RosterEntry{{State: lifecycle.Ready, Host: "there"}, {State: lifecycle.Pending}}, true},
		"one that crashed elsewhere":    {[]api.RosterEntry{{State: lifecycle.Failed, Host: "there"}}, true},
		"one that rests after failures": {[]api.RosterEntry{{State: lifecycle.Failed, Host: "here", Resting: true}}, false},
		"one that leaves":               {[]api.RosterEntry{{State: lifecycle.Ready, Host: "here", Leaving: true}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := outlook(api.PoolStatus{Pool: "p", Workers: c.workers}, "here")
			if c.hope {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, api.ErrNoWorkers)
			}
		})
	}
}

func TestAGatewayWithoutWorkersNamesTheOthers(t *testing.T) {
	at := func(host string, state lifecycle.State) api.RosterEntry {
		return api.RosterEntry{State: state, Host: host, Endpoint: "http://" + host + ":7460"}
	}
	err := outlook(api.PoolStatus{Pool: "p", Workers: []api.RosterEntry{
		at("one", lifecycle.Ready), at("two", lifecycle.Busy), at("two", lifecycle.Ready), at("three", lifecycle.Draining),
		{State: lifecycle.Starting, Host: "four"}, {State: lifecycle.Ready, Host: "five", Endpoint: "http://five:7460", Leaving: true},
	}}, "here")
	problem := problemOf(fmt.Errorf("call: %w", err))
	require.Equal(t, api.CodeNoWorkers, problem.Code)
	require.Equal(t, []Peer{{"two", "http://two:7460"}, {"one", "http://one:7460"}, {"three", "http://three:7460"}}, problem.Gateways)
	require.Contains(t, problem.Detail, "one, two, three, four")
	require.Empty(t, problemOf(outlook(api.PoolStatus{Pool: "p"}, "here")).Gateways)
}

func TestEveryErrorIsAProblemOfItsOwn(t *testing.T) {
	remote := &wire.RemoteError{Code: "odd", Message: "so it was"}
	for name, c := range map[string]struct {
		err    error
		status int
		code   api.Code
	}{
		"coded":                {api.Errorf(api.CodeLeaseFenced, "gone"), 409, api.CodeLeaseFenced},
		"coded and wrapped":    {fmt.Errorf("while calling: %w", api.Errorf(api.CodeQueueFull, "full")), 429, api.CodeQueueFull},
		"a deadline":           {context.DeadlineExceeded, 504, api.CodeDeadlineExceeded},
		"a cancel":             {context.Canceled, 499, api.CodeCancelled},
		"the worker's own":     {api.Errorf(api.CodeWorkerError, "failed: %w", remote), 500, api.CodeWorkerError},
		"unknown":              {errors.New("surprise"), 500, codeInternal},
		"a code nobody mapped": {api.Errorf("novel", "surprise"), 500, "novel"},
	} {
		t.Run(name, func(t *testing.T) {
			p := problemOf(c.err)
			require.Equal(t, c.status, p.Status)
			require.Equal(t, c.code, p.Code)
			require.NotEmpty(t, p.Title)
			require.NotEmpty(t, p.Detail)
			require.Equal(t, c.code == api.CodeWorkerError, p.WorkerError != nil)
		})
	}
}

func TestTheFenceFallsOnlyAfterALongSilence(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	c := newContact(time.Minute, began)
	require.False(t, c.fenced(began.Add(time.Hour)), "nobody has found Temporal missing")
	c.answered(began.Add(time.Hour))
	require.True(t, c.silent())
	require.False(t, c.silent(), "that is no news")
	require.False(t, c.fenced(began.Add(time.Hour+59*time.Second)))
	require.True(t, c.fenced(began.Add(time.Hour+time.Minute)))
	require.Equal(t, time.Minute, c.silence(began.Add(time.Hour+time.Minute)))
	require.True(t, c.answered(began.Add(2*time.Hour)))
	require.Zero(t, c.silence(began.Add(3*time.Hour)))
}
