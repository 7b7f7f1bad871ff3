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

// crowd is how many sessions eight workers have to serve; make soak has ten thousand.
var crowd = flag.Int("sessions", 1_000, "how many sessions live at once on eight workers")

const (
	crowdWorkers = 8
	// crowdRush keep all workers busy, so that the gateway leases them all. crowdCallers keep most busy and leave a choice: with none the next
	// call goes to whichever worker the system lets run.
	crowdRush    = 16
	crowdCallers = 6
	// crowdSpread is the most calls that the busiest worker may have, in the mean of all. In a short run crowdLead beyond it say nothing: a
	// worker may be 16 calls ahead of the others, and may have been as many behind when the count began.
	crowdSpread = 1.05
	crowdLead   = 32
	crowdLong   = 20_000 // calls
	crowdRounds = 3
)

// guest is one session and what its workers have been told to keep in it. Only one caller at a time uses it.
type guest struct {
	id string
	// kept was acknowledged last; a call that broke off may have kept maybe instead.
	kept, maybe int
}

// visits has callers make calls in sessions, each in sessions of its own, and knows how they fell upon the workers.
type visits struct {
	client *http.Client
	made   atomic.Int64

	mu     sync.Mutex
	served map[string]int // by worker
	broken int
	wrong  error
}

// all makes n calls, so many at a time, over and over through the guests.
func (v *visits) all(guests []*guest, n, callers int) {
	v.served = map[string]int{}
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := c; i < n; i += callers {
				if err := v.visit(guests[i%len(guests)]); err != nil {
					v.mu.Lock()
					v.wrong = err
					v.mu.Unlock()
					return
				}
				v.made.Add(1)
			}
		})
	}
	group.Wait()
}

// visit has a worker keep the next number in a session; a call that no worker has seen is made again.
func (v *visits) visit(g *guest) error {
	next := max(g.kept, g.maybe) + 1
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
			g.kept = next
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
			g.maybe = next
			v.mu.Lock()
			v.broken++
			v.mu.Unlock()
			return nil
		}
	}
}

func TestACrowdOfSessionsIsSpreadEvenlyAndOutlivesTheWorkersThatServedIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("crowd")
	s := python("crowd", crowdWorkers, "sessions.py")
	s.Sessions.Max, s.Rotation.MaxRequests = *crowd, 0
	w.start(s)
	guests := make([]*guest, *crowd)
	for i := range guests {
		guests[i] = &guest{id: fmt.Sprint("guest-", i)}
	}
	v := &visits{client: w.over("crowd")}
	began := time.Now()
	v.all(guests, len(guests), crowdRush) // each session is made
	require.NoError(t, v.wrong)
	t.Logf("%d sessions were made in %s", len(guests), time.Since(began).Round(time.Millisecond))

	calls := max(2*len(guests), 4_000)
	most := crowdSpread * float64(calls) / crowdWorkers
	if calls < crowdLong {
		most += crowdLead
	}
	// A machine that is busy with other things may stop a worker, or all callers, for so long that a lease goes back: that says nothing.
	for round := 1; ; round++ {
		v.all(guests, 20*crowdRush, crowdRush)
		v.all(guests, calls, crowdCallers)
		require.NoError(t, v.wrong)
		require.Zero(t, v.broken)
		busiest := slices.Max(slices.Collect(maps.Values(v.served)))
		t.Logf("%d calls in %d sessions: the busiest of %d workers had %.3f times the mean", calls, len(guests), len(v.served), float64(busiest)*crowdWorkers/float64(calls))
		if float64(busiest) <= most {
			break
		}
		require.Less(t, round, crowdRounds, "%v", v.served)
	}
	require.Equal(t, len(guests), listSessions(t, v.client))

	// Two workers are killed while each session is visited again.
	before := v.made.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		v.all(guests, len(guests), crowdRush)
	}()
	for kill := range int64(2) {
		require.Eventually(t, func() bool { return v.made.Load() >= before+(kill+1)*int64(len(guests))/4 }, patience, time.Millisecond)
		require.True(t, killOne("crowd"))
	}
	<-done
	require.NoError(t, v.wrong)
	t.Logf("%d calls were broken off by two kills", v.broken)
	require.LessOrEqual(t, v.broken, 2*s.Pool.MaxInflight)
	require.Equal(t, len(guests), listSessions(t, v.client), "no session is lost, and none made twice")
	for _, g := range guests {
		var kept sessions.Session
		require.NoError(t, json.Unmarshal([]byte(must(t, v.client, "GET", "/v1/sessions/"+g.id, "", "")), &kept))
		require.Contains(t, []string{fmt.Sprint(g.kept), fmt.Sprint(g.maybe)}, string(kept.Data["n"]), g.id)
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
		require.NoError(t, json.Unmarshal([]byte(must(t, c, "GET", "/v1/sessions?limit=1000&after="+after, "", "")), &page))
		for _, s := range page.Sessions {
			ids = append(ids, s.ID)
		}
		if after = page.Next; after == "" {
			slices.Sort(ids)
			return len(slices.Compact(ids))
		}
	}
}
