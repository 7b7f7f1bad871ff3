package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// sessionCount is how many sessions eight workers have to serve; make soak has ten thousand.
var sessionCount = flag.Int("sessions", 1_000, "how many sessions live at once on eight workers")

const (
	sessionWorkers = 8
	// saturatingCallers keep all workers busy, so that the gateway leases them all. balancingCallers keep most busy and leave a choice: with none the next
	// call goes to whichever worker the system lets run.
	saturatingCallers = 16
	balancingCallers  = 6
	// maxImbalance is the most calls that the busiest worker may have, in the mean of all. In a short run shortRunSlack beyond it say nothing: a
	// worker may be 16 calls ahead of the others, and may have been as many behind when the count began.
	maxImbalance  = 1.05
	shortRunSlack = 32
	longRunCalls  = 20_000 // calls
	maxRounds     = 3
)

// sessionState is one session and what its workers have been told to keep in it. Only one caller at a time uses it.
type sessionState struct {
	id string
	// kept was acknowledged last; a call that broke off may have kept maybe instead.
	acknowledged, unconfirmed int
}

// sessionLoad has callers make calls in sessions, each in sessions of its own, and knows how they fell upon the workers.
type sessionLoad struct {
	client *http.Client
	calls  atomic.Int64

	mu          sync.Mutex
	served      map[string]int // by worker
	interrupted int
	err         error
}

// run makes n calls, so many at a time, over and over through the guests.
func (v *sessionLoad) run(guests []*sessionState, n, callers int) {
	v.served = map[string]int{}
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := c; i < n; i += callers {
				if err := v.call(guests[i%len(guests)]); err != nil {
					v.mu.Lock()
					v.err = err
					v.mu.Unlock()
					return
				}
				v.calls.Add(1)
			}
		})
	}
	group.Wait()
}

// visit has a worker keep the next number in a session; a call that no worker has seen is made again.
func (v *sessionLoad) call(g *sessionState) error {
	next := max(g.acknowledged, g.unconfirmed) + 1
	for {
		request, err := http.NewRequest("POST", "http://gateway/v1/pools/crowd/call/remember", strings.NewReader(fmt.Sprintf(`["n",%d]`, next)))
		if err != nil {
			return err
		}
		request.Header.Set("Tempool-Session", g.id)
		response, err := v.client.Do(request)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return err
		}
		if response.StatusCode == http.StatusOK {
			g.acknowledged = next
			v.mu.Lock()
			v.served[response.Header.Get("Tempool-Worker")]++
			v.mu.Unlock()
			return nil
		}
		var problem struct {
			Code    api.Code
			Started bool
		}
		switch err := json.Unmarshal(answer, &problem); {
		case err != nil:
			return fmt.Errorf("status %d: %s", response.StatusCode, answer)
		case problem.Started && problem.Code != api.CodeWorkerCrashed:
			return fmt.Errorf("%s", answer)
		case problem.Started:
			g.unconfirmed = next
			v.mu.Lock()
			v.interrupted++
			v.mu.Unlock()
			return nil
		}
	}
}

func TestManySessionsSpreadEvenlyAndSurviveWorkerCrashes(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	env.startAgent("crowd")
	s := pythonSpec("crowd", sessionWorkers, "sessions.py")
	s.Sessions.Max, s.Rotation.MaxRequests = *sessionCount, 0
	env.startPool(s)
	guests := make([]*sessionState, *sessionCount)
	for i := range guests {
		guests[i] = &sessionState{id: fmt.Sprint("guest-", i)}
	}
	v := &sessionLoad{client: env.gatewayClient("crowd")}
	began := time.Now()
	v.run(guests, len(guests), saturatingCallers) // each session is made
	require.NoError(t, v.err)
	t.Logf("%d sessions were made in %s", len(guests), time.Since(began).Round(time.Millisecond))

	calls := max(2*len(guests), 4_000)
	most := maxImbalance * float64(calls) / sessionWorkers
	if calls < longRunCalls {
		most += shortRunSlack
	}
	// A machine that is busy with other things may stop a worker, or all callers, for so long that a lease goes back: that says nothing.
	for round := 1; ; round++ {
		v.run(guests, 20*saturatingCallers, saturatingCallers)
		v.run(guests, calls, balancingCallers)
		require.NoError(t, v.err)
		require.Zero(t, v.interrupted)
		busiest := slices.Max(slices.Collect(maps.Values(v.served)))
		t.Logf("%d calls in %d sessions: the busiest of %d workers had %.3f times the mean", calls, len(guests), len(v.served), float64(busiest)*sessionWorkers/float64(calls))
		if float64(busiest) <= most {
			break
		}
		require.Less(t, round, maxRounds, "%v", v.served)
	}
	require.Equal(t, len(guests), listSessions(t, v.client))

	// Two workers are killed while each session is visited again.
	before := v.calls.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		v.run(guests, len(guests), saturatingCallers)
	}()
	for kill := range int64(2) {
		require.Eventually(t, func() bool { return v.calls.Load() >= before+(kill+1)*int64(len(guests))/4 }, waitTimeout, time.Millisecond)
		require.True(t, killRandomWorker("crowd"))
	}
	<-done
	require.NoError(t, v.err)
	t.Logf("%d calls were broken off by two kills", v.interrupted)
	require.LessOrEqual(t, v.interrupted, 2*s.Pool.MaxInflight)
	require.Equal(t, len(guests), listSessions(t, v.client), "no session is lost, and none made twice")
	for _, g := range guests {
		var kept sessions.Session
		require.NoError(t, json.Unmarshal([]byte(mustRequest(t, v.client, "GET", "/v1/sessions/"+g.id, "", "")), &kept))
		require.Contains(t, []string{fmt.Sprint(g.acknowledged), fmt.Sprint(g.unconfirmed)}, string(kept.Data["n"]), g.id)
	}
}

// listSessions counts the sessions that the gateway lists, page by page.
func listSessions(t *testing.T, c *http.Client) int {
	t.Helper()
	var ids []string
	for after := ""; ; {
		var page struct {
			Sessions []struct{ ID string }
			Next     string
		}
		require.NoError(t, json.Unmarshal([]byte(mustRequest(t, c, "GET", "/v1/sessions?limit=1000&after="+after, "", "")), &page))
		for _, s := range page.Sessions {
			ids = append(ids, s.ID)
		}
		if after = page.Next; after == "" {
			slices.Sort(ids)
			return len(slices.Compact(ids))
		}
	}
}
