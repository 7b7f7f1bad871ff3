package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// soak is the duration of TestWithWorkersKilledEachCallIsAnsweredOrFailsWithACodeAndIsCountedOnce; make soak uses ten
// minutes.
var soak = flag.Duration("soak", 10*time.Second, "how long to make calls while a worker is killed every second")

const (
	soakCallers = 8
	soakTimeout = 5 * time.Second // of one call
)

// soakCaller makes one call after the other and counts the results.
type soakCaller struct {
	client     *http.Client
	ok         int64
	started    map[api.Code]int64 // failed calls that a worker may have started
	notStarted map[api.Code]int64 // failed calls that no worker started; each was repeated
	longest    time.Duration
	err        error // an unexpected result, which stops the caller
}

// call makes one call, and repeats it while no worker started it. It returns false after an unexpected result.
func (s *soakCaller) call(body string) bool {
	for {
		began := time.Now()
		response, answer, err := send(context.Background(), s.client, http.MethodPost, "/v1/pools/soak/call/echo", body,
			api.HeaderTimeout, fmt.Sprint(soakTimeout.Milliseconds()))
		took := time.Since(began)
		s.longest = max(s.longest, took)
		switch {
		case err != nil:
			s.err = err
		case took > soakTimeout+30*time.Second: // far beyond its timeout
			s.err = fmt.Errorf("a call of at most %s took %s", soakTimeout, took)
		case response.StatusCode == http.StatusOK && answer == body:
			s.ok++
			return true
		case response.StatusCode == http.StatusOK:
			s.err = fmt.Errorf("%q was answered to %q", answer, body)
		}
		if s.err != nil {
			return false
		}
		var problem struct {
			Code    api.Code
			Started *bool
		}
		if err := json.Unmarshal([]byte(answer), &problem); err != nil || problem.Code == "" || problem.Started == nil {
			s.err = fmt.Errorf("%s with no coded error that says whether the call was started: %s", response.Status, answer)
			return false
		}
		if *problem.Started {
			s.started[problem.Code]++
			return true
		}
		s.notStarted[problem.Code]++
	}
}

// killRandomWorker kills one process of a host's workers. It returns false if there was none.
func killRandomWorker(hostID string) bool { return killOneOf(hostProcesses(hostID)) }

func killOneOf(pids []int) bool {
	return len(pids) > 0 && syscall.Kill(pids[rand.N(len(pids))], syscall.SIGKILL) == nil
}

func TestWithWorkersKilledEachCallIsAnsweredOrFailsWithACodeAndIsCountedOnce(t *testing.T) {
	env := oneHost(t, "soak")
	counts := filepath.Join(env.dir, "counts")
	require.NoError(t, os.Mkdir(counts, 0o700))
	s := pythonSpec("soak", 8, "counting.py")
	s.Pool.Env["COUNTS"] = counts
	s.Rotation.MaxRequests = 2_000 // so that kills also hit switches to a successor
	s.Recovery.MaxConsecutiveFailures, s.Recovery.BackoffMax = 1_000_000, spec.Duration(time.Second)
	pool := env.startPool(s)

	ctx, cancel := context.WithTimeout(t.Context(), *soak)
	defer cancel()
	callers := make([]*soakCaller, soakCallers)
	var group sync.WaitGroup
	for i := range callers {
		c := &soakCaller{client: env.gatewayClient("soak"), started: map[api.Code]int64{}, notStarted: map[api.Code]int64{}}
		callers[i] = c
		group.Go(func() {
			for n := 0; ctx.Err() == nil && c.call(fmt.Sprintf(`"caller %d, call %d"`, i, n)); n++ {
			}
		})
	}
	kills := 0
	for every := time.NewTicker(time.Second); ctx.Err() == nil; {
		select {
		case <-every.C:
			if killRandomWorker("soak") {
				kills++
			}
		case <-ctx.Done():
			every.Stop()
		}
	}
	group.Wait()

	sum := soakCaller{started: map[api.Code]int64{}, notStarted: map[api.Code]int64{}}
	var interrupted int64
	for _, c := range callers {
		require.NoError(t, c.err)
		sum.ok, sum.longest = sum.ok+c.ok, max(sum.longest, c.longest)
		for code, n := range c.started {
			sum.started[code] += n
			interrupted += n
		}
		for code, n := range c.notStarted {
			sum.notStarted[code] += n
		}
	}
	t.Logf("%d kills; %d calls answered, the longest took %s; failed after start: %v; not started and repeated: %v",
		kills, sum.ok, sum.longest.Round(time.Millisecond), sum.started, sum.notStarted)
	require.Positive(t, sum.ok)
	require.Positive(t, kills)
	require.LessOrEqual(t, sum.started[api.CodeWorkerCrashed], int64(kills*s.Pool.MaxInflight),
		"a kill fails at most the calls in flight on its worker")
	for code := range sum.started { // a call may also reach its deadline on a machine that stalls
		require.Contains(t, []api.Code{api.CodeWorkerCrashed, api.CodeDeadlineExceeded}, code)
	}

	var counted int64
	entries, err := os.ReadDir(counts)
	require.NoError(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		counted += info.Size()
	}
	require.GreaterOrEqual(t, counted, sum.ok, "workers counted each answered call")
	require.LessOrEqual(t, counted, sum.ok+interrupted, "and no other")

	byGateway := make([]int64, s.Pool.Size)
	var total int64
	assert.Eventually(t, func() bool { // a call that reached its deadline is counted once its worker has given it up
		page := readScrape(t, env.gatewayClient("soak"))
		total = 0
		for slot := range byGateway {
			byGateway[slot] = 0
			for _, m := range page.series("tempool_worker_requests_total", "pool", "soak", "worker",
				api.WorkerName("soak", slot)) {
				byGateway[slot] = int64(m.GetCounter().GetValue())
			}
			total += byGateway[slot]
		}
		return total == sum.ok+interrupted
	}, waitTimeout, 100*time.Millisecond, "the gateway counted each call")
	require.Equal(t, sum.ok+interrupted, total, "the gateway counted each call")
	reported := make([]int64, s.Pool.Size)
	var failed int64
	if !assert.Eventually(t, func() bool {
		view, err := pool.Workers(t.Context())
		if err != nil || view.Ready < s.Pool.Size {
			return false
		}
		failed = 0
		for i, worker := range view.Workers {
			reported[i] = worker.RequestsServed
			failed += worker.RequestsFailed
		}
		return slices.Equal(reported, byGateway) && failed == interrupted
	}, waitTimeout, 100*time.Millisecond, "the workflows count each call once") {
		t.Logf("counted by the gateway: %d, reported to the workflows: %d, with %d of %d failures", byGateway, reported,
			failed, interrupted)
	}
}
