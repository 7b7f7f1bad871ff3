package e2e

import (
	"context"
	"encoding/json"
	"errors"
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

// soakCalls are the results of the calls of all callers.
type soakCalls struct {
	mu         sync.Mutex
	ok         int64
	started    map[api.Code]int64 // failed calls that a worker may have started
	notStarted map[api.Code]int64 // failed calls that no worker started; each was repeated
	longest    time.Duration
	err        error // an unexpected result, which stops its caller
}

func newSoakCalls() *soakCalls {
	return &soakCalls{started: map[api.Code]int64{}, notStarted: map[api.Code]int64{}}
}

// call makes one call, and repeats it while no worker started it. It returns false after an unexpected result.
func (s *soakCalls) call(client *http.Client, body string) bool {
	for {
		began := time.Now()
		response, answer, err := send(context.Background(), client, http.MethodPost, "/v1/pools/soak/call/echo", body,
			api.HeaderTimeout, fmt.Sprint(soakTimeout.Milliseconds()))
		if over, expected := s.count(response, answer, body, time.Since(began), err); over {
			return expected
		}
	}
}

// count counts a result, and reports whether the call is over and whether that is as it should be.
func (s *soakCalls) count(r *http.Response, answer, body string, took time.Duration, err error) (over, expected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, took)
	var problem struct {
		Code    api.Code
		Started *bool
	}
	switch {
	case err != nil:
	case took > soakTimeout+30*time.Second: // far beyond its timeout
		err = fmt.Errorf("a call of at most %s took %s", soakTimeout, took)
	case r.StatusCode == http.StatusOK && answer == body:
		s.ok++
		return true, true
	case r.StatusCode == http.StatusOK:
		err = fmt.Errorf("%q was answered to %q", answer, body)
	case json.Unmarshal([]byte(answer), &problem) != nil || problem.Code == "" || problem.Started == nil:
		err = fmt.Errorf("%s with no coded error that says whether the call was started: %s", r.Status, answer)
	case *problem.Started:
		s.started[problem.Code]++
		return true, true
	default:
		s.notStarted[problem.Code]++
		return false, true
	}
	s.err = errors.Join(s.err, err)
	return true, false
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
	sum := newSoakCalls()
	var group sync.WaitGroup
	for i := range soakCallers {
		client := env.gatewayClient("soak")
		group.Go(func() {
			for n := 0; ctx.Err() == nil && sum.call(client, fmt.Sprintf(`"caller %d, call %d"`, i, n)); n++ {
			}
		})
	}
	kills := 0
	for wait(ctx, time.Second) {
		if killRandomWorker("soak") {
			kills++
		}
	}
	group.Wait()

	require.NoError(t, sum.err)
	var interrupted int64
	for _, n := range sum.started {
		interrupted += n
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
