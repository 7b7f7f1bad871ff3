//go:build !cluster

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

var (
	monthLength = flag.Duration("month", time.Minute, "how long TestACompressedMonth gives commands and makes faults")
	monthSeed   = flag.Uint64("month-seed", 0, "seed of the commands and faults; 0 is a random one, which the test prints")
)

const (
	// The server suggests to continue as new at monthSuggest history events, and terminates a run at monthLimit. By
	// default it terminates one at 12 times the suggested length.
	monthSuggest, monthLimit = 120, 1000
	monthSize                = 5
	monthTenants             = 3
	// monthReason is given for each command, by which the end of a run that the test terminated is known.
	monthReason = "by hand"
	// monthRecoveryTimeout is how long the pool may take until all its workers are ready after the last fault.
	monthRecoveryTimeout = 3 * time.Minute
)

// month is a busy pool on two hosts whose workflows continue as new every few seconds.
type month struct {
	*testEnv
	random *rand.Rand
	spec   spec.Spec
	pool   *tempool.Pool
	hosts  []string
	agents map[string]*agent // those that run
	notes  string

	log   []string
	count map[string]int

	mu      sync.Mutex
	leases  map[string]string // holders by lease ID
	double  []string
	served  map[string]int
	uncoded map[string]error
}

// TestACompressedMonth keeps a pool busy while it gets every command and every fault at random, with histories so short
// that workflows continue as new all the time. Afterwards every workflow that should be open is, no lease was held
// twice, no process is left over, and every worker is ready.
func TestACompressedMonth(t *testing.T) {
	t.Parallel()
	seed := *monthSeed
	if seed == 0 {
		seed = rand.Uint64N(1_000_000)
	}
	t.Logf("seed %d (repeat with -month-seed %d)", seed, seed)
	env := newEnvWith(t,
		"--dynamic-config-value", fmt.Sprintf("limit.historyCount.suggestContinueAsNew=%d", monthSuggest),
		"--dynamic-config-value", fmt.Sprintf("limit.historyCount.error=%d", monthLimit))
	m := &month{
		testEnv: env, random: rand.New(rand.NewPCG(seed, seed)), agents: map[string]*agent{},
		notes: filepath.Join(env.dir, "notes"),
		count: map[string]int{}, leases: map[string]string{}, served: map[string]int{}, uncoded: map[string]error{},
	}
	m.hosts = []string{fmt.Sprintf("month-a-%d", os.Getpid()), fmt.Sprintf("month-b-%d", os.Getpid())}
	for _, host := range m.hosts {
		m.agents[host] = m.startAgent(host, "--capacity", "8")
	}
	m.spec = pythonSpec("month", monthSize, "tenant.py")
	m.spec.Pool.Env["NOTES"] = m.notes
	m.spec.Rotation.MaxUptime, m.spec.Rotation.MaxRequests = spec.Duration(30*time.Second), 100
	m.spec.Rotation.DrainTimeout = spec.Duration(2 * time.Second)
	m.spec.Health.Interval, m.spec.Health.Checkpoint = spec.Duration(time.Second), spec.Duration(5*time.Second)
	m.spec.Recovery.MaxConsecutiveFailures, m.spec.Recovery.BackoffMax = 1_000, spec.Duration(2*time.Second)
	m.pool = m.startPool(m.spec)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last commands and faults:\n%s", strings.Join(m.log[max(0, len(m.log)-20):], "\n"))
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), *monthLength)
	defer cancel()
	var group sync.WaitGroup
	for i := range monthTenants {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				m.rent(ctx, random, fmt.Sprintf("tenant-%d-%d", i, n))
			}
		})
	}
	group.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			var answer int
			m.result("call", m.pool.Call(ctx, "echo", n, &answer))
			wait(ctx, 20*time.Millisecond)
		}
	})
	for ctx.Err() == nil {
		m.act()
		wait(ctx, time.Duration(50+m.random.IntN(700))*time.Millisecond)
	}
	group.Wait()
	t.Logf("commands and faults: %v", m.count)
	t.Logf("calls and leases: %v; errors without a code: %v", m.served, m.uncoded)
	m.recover()
	m.check()
}

// result counts how something ended, by its code.
func (m *month) result(what string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	outcome := "ok"
	if err != nil {
		if outcome = string(api.CodeOf(err)); outcome == "" {
			outcome = "error"
			m.uncoded[what] = err
		}
	}
	m.served[what+" "+outcome]++
}

// rent takes a lease, makes calls under it, and returns it in one of the possible ways, or not at all.
func (m *month) rent(ctx context.Context, random *rand.Rand, holder string) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	lease, err := m.pool.Checkout(ctx, tempool.CheckoutOptions{
		Holder: holder, TTL: 3 * time.Second, Wait: 2 * time.Second, NoRenew: random.IntN(4) == 0,
	})
	m.result("checkout", err)
	if err != nil {
		return
	}
	m.mu.Lock()
	if other, taken := m.leases[lease.ID]; taken {
		m.double = append(m.double, fmt.Sprintf("%s was granted to %s and to %s", lease.ID, other, holder))
	}
	m.leases[lease.ID] = holder
	m.mu.Unlock()
	err = lease.Call(ctx, "begin", lease.ID, nil)
	m.result("begin", err)
	for n := random.IntN(12); n > 0 && err == nil && ctx.Err() == nil; n-- {
		wait(ctx, time.Duration(random.IntN(400))*time.Millisecond)
		err = lease.Call(ctx, "touch", lease.ID, nil)
		m.result("touch", err)
	}
	if err != nil && lease.Err() != nil {
		return
	}
	switch random.IntN(10) {
	case 0: // the lease expires
	case 1:
		m.result("renew", lease.Renew(ctx))
	case 2:
		m.result("checkin", lease.Checkin(ctx, api.OutcomeError))
	case 3:
		m.result("checkin", lease.Checkin(ctx, api.OutcomeClose))
	default:
		m.result("checkin", lease.Checkin(ctx, api.OutcomeOK))
	}
}

// recover undoes what commands have done and waits until all workers are ready.
func (m *month) recover() {
	for _, host := range m.hosts {
		if m.agents[host] == nil {
			m.agents[host] = m.startAgent(host, "--capacity", "8")
		}
	}
	t := m.t
	var err error
	require.Eventually(t, func() bool {
		m.ensurePool() // again: a pool that was cancelled may only end now
		_, err = m.pool.Scale(t.Context(), monthSize)
		return err == nil
	}, waitTimeout, time.Second, "the pool takes commands: %v", &err)
	for _, slot := range m.slots() {
		// the worker may be between two workflows
		_ = m.pool.Signal(t.Context(), slot, api.SignalResume, api.Control{Reason: "the month is over"})
	}
	began := time.Now()
	_, err = m.pool.Restart(t.Context(), api.RestartRequest{Reason: "the month is over"})
	require.NoError(t, err)
	m.waitForWithin(monthRecoveryTimeout, m.pool, "all workers are ready", func(v api.PoolWorkers) bool {
		for _, w := range v.Workers { // a worker may have been suspended before it had a process
			if w.State == "suspended" {
				_ = m.pool.Signal(t.Context(), slotOf(w.Worker), api.SignalResume, api.Control{})
			}
		}
		return v.Ready == monthSize && len(v.Workers) == monthSize && (v.Rollout == nil || v.Rollout.Halted != "")
	})
	t.Logf("all workers were ready %s after the last fault", time.Since(began).Round(time.Millisecond))
}

// slots are the numbers of the pool's workers.
func (m *month) slots() (slots []int) {
	status, err := m.pool.Status(m.t.Context())
	require.NoError(m.t, err)
	for _, w := range status.Workers {
		slots = append(slots, w.Slot)
	}
	return slots
}

func slotOf(worker string) int {
	_, slot, _ := api.ParseWorkerName(worker)
	return slot
}

// check verifies what must hold after all faults.
func (m *month) check() {
	t := m.t
	require.Empty(t, m.double)
	if notes, err := os.ReadFile(m.notes); err == nil {
		require.Empty(t, string(notes), "calls under two leases")
	}
	longest, closed := map[string]int64{}, map[string]int{}
	for _, e := range m.executions(t.Context(), "") {
		kind := e.GetType().GetName()
		closed[kind+" "+strings.TrimPrefix(e.GetStatus().String(), "WORKFLOW_EXECUTION_STATUS_")]++
		longest[kind] = max(longest[kind], e.GetHistoryLength())
		switch e.GetStatus() {
		case enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, enums.WORKFLOW_EXECUTION_STATUS_FAILED,
			enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
			events, err := m.readHistory(t.Context(), e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId())
			require.NoError(t, err)
			event := events[len(events)-1] // how it was closed
			moves := kind == api.WorkflowEvacuateWorker || kind == api.WorkflowRebalanceSessions
			if moves && e.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_FAILED {
				// Its result: it moves no sessions of a pool that ends, or does not answer, meanwhile.
				failed := event.GetWorkflowExecutionFailedEventAttributes().GetFailure()
				require.NotEmpty(t, failed.GetApplicationFailureInfo().GetType(), "%s failed without a code: %s",
					e.GetExecution().GetWorkflowId(), event)
				continue
			}
			require.Equal(t, monthReason, event.GetWorkflowExecutionTerminatedEventAttributes().GetReason(),
				"%s was %s after %d events: %s",
				e.GetExecution().GetWorkflowId(), e.GetStatus(), e.GetHistoryLength(), event)
		}
	}
	t.Logf("runs: %v; the longest: %v", closed, longest)
	want := []string{"tempool/host/" + m.hosts[0], "tempool/host/" + m.hosts[1], "tempool/month"}
	for _, slot := range m.slots() {
		want = append(want, api.WorkerWorkflowID("month", slot))
	}
	require.Eventually(t, func() bool { return slices.Equal(want, m.open()) }, waitTimeout, time.Second,
		"the open workflows are %v, not %v", m.open(), want)
	m.requireProcesses()
	_, err := m.pool.Stop(t.Context(), "the month is over")
	require.NoError(t, err)
	m.waitEnd(m.pool)
	require.Eventually(t, func() bool {
		return len(hostProcesses(m.hosts[0]))+len(hostProcesses(m.hosts[1])) == 0
	}, waitTimeout, 100*time.Millisecond, "no process outlives the pool")
}

// requireProcesses waits until the hosts have the processes that the workflows know and no other.
func (m *month) requireProcesses() {
	m.waitFor(m.pool, "the hosts have exactly the workers' processes", func(v api.PoolWorkers) bool {
		var known []int
		for _, w := range v.Workers {
			known = append(known, w.PID)
		}
		found := append(hostProcesses(m.hosts[0]), hostProcesses(m.hosts[1])...)
		slices.Sort(known)
		slices.Sort(found)
		return v.Ready == monthSize && slices.Equal(known, found)
	})
}

// open are the IDs of the open workflows but the sweeper's.
func (m *month) open() []string {
	var ids []string
	for _, e := range m.executions(m.t.Context(), "ExecutionStatus = 'Running'") {
		if id := e.GetExecution().GetWorkflowId(); e.GetType().GetName() != api.WorkflowSweeper {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
