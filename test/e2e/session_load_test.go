package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/sessions"
)

// sessionCount is the number of sessions on eight workers; make soak uses ten thousand.
var sessionCount = flag.Int("sessions", 1_000, "number of concurrent sessions on eight workers")

const (
	sessionWorkers = 8
	// saturatingCallers keep all workers busy. balancingCallers leave some idle, so that the gateway has a choice.
	saturatingCallers = 16
	balancingCallers  = 6
	// maxImbalance bounds the calls of the busiest worker, as a multiple of the mean. A run of less than longRunCalls may
	// exceed it by shortRunSlack calls: balancing allows a lead of 16 calls, at the start and at the end of the count.
	maxImbalance  = 1.05
	shortRunSlack = 64
	longRunCalls  = 20_000 // calls
	maxRounds     = 3
)

// sessionState is a session and the number it should contain. Only one caller at a time uses it.
type sessionState struct {
	id string
	// acknowledged was stored; unconfirmed may have been stored by a call that failed.
	acknowledged, unconfirmed int
}

// sessionLoad makes concurrent calls in sessions and counts them by worker.
type sessionLoad struct {
	client *http.Client
	calls  atomic.Int64

	mu          sync.Mutex
	served      map[string]int // by worker
	interrupted int
	err         error
}

// run makes n calls with this many concurrent callers, in all sessions in turn.
func (l *sessionLoad) run(states []*sessionState, n, callers int) {
	l.served = map[string]int{}
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := c; i < n; i += callers {
				if err := l.call(states[i%len(states)]); err != nil {
					l.mu.Lock()
					l.err = err
					l.mu.Unlock()
					return
				}
				l.calls.Add(1)
			}
		})
	}
	group.Wait()
}

// call stores the next number in a session. It repeats calls that were not started.
func (l *sessionLoad) call(s *sessionState) error {
	next := max(s.acknowledged, s.unconfirmed) + 1
	for {
		response, answer, err := send(context.Background(), l.client, http.MethodPost, "/v1/pools/load/call/remember",
			fmt.Sprintf(`["n",%d]`, next), api.HeaderSession, s.id)
		if err != nil {
			return err
		}
		if response.StatusCode == http.StatusOK {
			s.acknowledged = next
			l.mu.Lock()
			l.served[response.Header.Get("Tempool-Worker")]++
			l.mu.Unlock()
			return nil
		}
		var problem gateway.Problem
		switch err := json.Unmarshal([]byte(answer), &problem); {
		case err != nil:
			return fmt.Errorf("%s: %s", response.Status, answer)
		case problem.Started && problem.Code != api.CodeWorkerCrashed:
			return errors.New(answer)
		case problem.Started:
			s.unconfirmed = next
			l.mu.Lock()
			l.interrupted++
			l.mu.Unlock()
			return nil
		}
	}
}

func TestManySessionsSpreadEvenlyAndSurviveWorkerCrashes(t *testing.T) {
	env := oneHost(t, "load")
	s := pythonSpec("load", sessionWorkers, "sessions.py")
	s.Sessions.Max, s.Rotation.MaxRequests = *sessionCount, 0
	env.startPool(s)
	states := make([]*sessionState, *sessionCount)
	for i := range states {
		states[i] = &sessionState{id: fmt.Sprint("session-", i)}
	}
	l := &sessionLoad{client: env.gatewayClient("load")}
	began := time.Now()
	l.run(states, len(states), saturatingCallers) // creates each session
	require.NoError(t, l.err)
	t.Logf("%d sessions created in %s", len(states), time.Since(began).Round(time.Millisecond))

	calls := max(2*len(states), 4_000)
	most := maxImbalance * float64(calls) / sessionWorkers
	if calls < longRunCalls {
		most += shortRunSlack
	}
	// On a loaded machine a worker may pause for so long that the others serve its calls, which unbalances a round.
	for round := 1; ; round++ {
		l.run(states, 20*saturatingCallers, saturatingCallers)
		l.run(states, calls, balancingCallers)
		require.NoError(t, l.err)
		require.Zero(t, l.interrupted)
		busiest := slices.Max(slices.Collect(maps.Values(l.served)))
		t.Logf("%d calls in %d sessions: the busiest of %d workers had %.3f times the mean", calls, len(states),
			len(l.served), float64(busiest)*sessionWorkers/float64(calls))
		if float64(busiest) <= most {
			break
		}
		require.Less(t, round, maxRounds, "%v", l.served)
	}
	require.Equal(t, len(states), countSessions(t, l.client))

	// Two workers are killed during one more call in each session.
	before := l.calls.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(states, len(states), saturatingCallers)
	}()
	for kill := range int64(2) {
		require.Eventually(t, func() bool { return l.calls.Load() >= before+(kill+1)*int64(len(states))/4 }, waitTimeout,
			time.Millisecond)
		require.True(t, killRandomWorker("load"))
	}
	<-done
	require.NoError(t, l.err)
	t.Logf("two kills interrupted %d calls", l.interrupted)
	require.LessOrEqual(t, l.interrupted, 2*s.Pool.MaxInflight)
	require.Equal(t, len(states), countSessions(t, l.client), "no session is lost or created twice")
	for _, g := range states {
		kept := decode[sessions.Session](t, mustRequest(t, l.client, "GET", "/v1/sessions/"+g.id, "", ""))
		require.Contains(t, []string{fmt.Sprint(g.acknowledged), fmt.Sprint(g.unconfirmed)}, string(kept.Data["n"]), g.id)
	}
}

// countSessions counts the sessions that the gateway lists, page by page.
func countSessions(t *testing.T, c *http.Client) int {
	t.Helper()
	var ids []string
	for after := ""; ; {
		page := decode[tempool.SessionList](t, mustRequest(t, c, "GET", "/v1/sessions?limit=1000&after="+after, "", ""))
		for _, s := range page.Sessions {
			ids = append(ids, s.ID)
		}
		if after = page.Next; after == "" {
			slices.Sort(ids)
			return len(slices.Compact(ids))
		}
	}
}
