package e2e

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

func TestPoolsThatShareAHost(t *testing.T) {
	oneHost(t, "host").atOnce(map[string]func(*testEnv){
		"a pool that is started again continues its numbers":       poolStartedAgain,
		"a rolling restart without surge under load fails no call": rollingRestart,
		"a rolling restart is halted, and another one ends it":     haltedRestart,
		"a host's budget is shared among its workers":              sharedBudget,
		"changed files restart workers and retry failed starts":    changedFiles,
		"a program trained by one worker runs on all others":       sharedProgram,
		"the full history spans continue-as-new":                   fullHistory,
		"a leaking worker is replaced before its memory limit":     leakIsPredicted,
		"one whose program is not well is degraded, then replaced": illProgram,
	})
}

func sharedProgram(env *testEnv) {
	s := loadSpec(env.t, "../../examples/programs")
	env.startPool(s)
	out := runClient(env.t, ".", []string{"PYTHONPATH=" + pythonSpec("", 0, "").Pool.Env["PYTHONPATH"]},
		"python3", "-B", "-W", "error", filepath.Join(s.Pool.Dir, "client.py"), "unix:"+env.socket("host"))
	require.Regexp(env.t, `(?s)^programs/\d trained a program of \d+ words.*(programs/\d ran it on \d+ pieces.*){3}`+
		`The session says: trained by programs/\d, \d+ pieces classified\.\n$`, out)
}

func TestContinueAsNewOfAPoolDoesNotDisturbItsWorkers(t *testing.T) {
	env := oneHost(t, "endless")
	pool := env.startPool(echoSpec("endless", 2))
	before := env.waitReady(pool, 2)
	env.continued("endless")
	sleep(t, 3*time.Second) // a stray cancellation of the workers would arrive within this time
	after := env.waitReady(pool, 2)
	for i := range after.Workers {
		require.Equal(t, before.Workers[i].PID, after.Workers[i].PID)
	}
	killProcess(t, after.Workers[0].PID)
	env.waitFor(pool, "the pool still receives reports of its workers", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Incarnation > after.Workers[0].Incarnation
	})
	scales(1)(env, pool)
	env.waitReady(pool, 1)
	env.stopPool(pool)
	require.Empty(t, hostProcesses("endless"))
}

func poolAndItsProcesses(env *testEnv) {
	s := echoSpec("byhand", 2)
	pool := env.startPool(s)
	ends := func() {
		pids := slices.Collect(maps.Values(env.pids(pool, 2)))
		env.terminate(api.PoolWorkflowID("byhand"))
		require.Eventually(env.t, func() bool { return !slices.ContainsFunc(pids, processAlive) }, waitTimeout,
			100*time.Millisecond)
	}
	ends()
	// After a continue-as-new, Temporal's parent close policy no longer reaches the pool's workers.
	env.startPool(s)
	env.continued("byhand")
	env.waitReady(pool, 2)
	ends()
}

// The first worker's lease holds the rolling restart up until an operator has halted it.
func haltedRestart(env *testEnv) {
	t, slot := env.t, 0
	s := echoSpec("halted", 2)
	s.Rotation.DrainTimeout = spec.Duration(waitTimeout)
	pool := env.startPool(s)
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me", Slot: &slot})
	restart := api.RestartRequest{Reason: "new moon"}
	env.restart(pool, restart)
	halted, err := pool.HaltRollout(t.Context(), api.Control{Reason: "odd answers", By: "ada"})
	require.NoError(t, err)
	require.Equal(t, []int{1}, halted.Waiting)
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	first := env.waitFor(pool, "only the worker that restarted has restarted", func(v api.PoolWorkers) bool {
		return v.Rollout != nil && v.Rollout.ByOperator && len(v.Rollout.Current) == 0 && v.Ready == 2 &&
			v.Workers[0].Incarnation > 1 && v.Workers[1].Incarnation == 1
	})
	env.restart(pool, restart)
	env.waitFor(pool, "both have restarted", func(v api.PoolWorkers) bool {
		return v.Rollout == nil && v.Ready == 2 && v.Workers[0].Incarnation > first.Workers[0].Incarnation &&
			v.Workers[1].Incarnation > 1
	})
}

func leasedWorker(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("restarted", 1))
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me"})
	before := env.waitState(pool, 0, lifecycle.Busy)
	env.terminate(api.WorkerWorkflowID("restarted", 0))
	env.waitFor(pool, "the worker is back",
		func(v api.PoolWorkers) bool { return v.Ready == 1 && v.Workers[0].PID != before.PID })
	next := env.checkout(pool, tempool.CheckoutOptions{Holder: "you"})
	require.Greater(t, next.Incarnation, lease.Incarnation)
	require.Greater(t, next.Seq, lease.Seq)
	require.Eventually(t, func() bool { return !processAlive(before.PID) }, waitTimeout, 100*time.Millisecond)
}

func poolStartedAgain(env *testEnv) {
	t := env.t
	pool := env.startPool(echoSpec("again", 1))
	for range 12 { // more than recovery.max_consecutive_failures
		before := env.waitState(pool, 0, lifecycle.Ready).Incarnation
		env.restart(pool, api.RestartRequest{Worker: new(int)})
		env.waitLater(pool, "it has restarted", before)
	}
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me"})
	callLease(t, lease, "echo")
	env.stopPool(pool)

	env.startPool(echoSpec("again", 1))
	next := env.checkout(pool, tempool.CheckoutOptions{Holder: "you"})
	require.Greater(t, next.Incarnation, lease.Incarnation)
	callLease(t, next, "echo")
	env.requireFenced("host", lease.ID+"~"+lease.Token)
	require.Zero(t, env.waitReady(pool, 1).Workers[0].ConsecutiveFailures)
}

func TestAPoolWhoseSpecIsLargeStartsAllItsWorkers(t *testing.T) {
	env := oneHost(t, "host-a")
	const size = 75 // of 60 KB each: together more than Temporal takes at a time
	s := echoSpec("bulky", size)
	s.Pool.Placement = "nowhere" // the workflows are what is to start
	s.Pool.Env["BULK"] = strings.Repeat("x", 60<<10)
	pool := env.beginPool(s)
	require.Eventually(t, func() bool {
		status, err := pool.Status(t.Context())
		if err != nil || len(status.Workers) != size {
			return false
		}
		for _, w := range status.Workers {
			if w.RunID == "" {
				return false
			}
		}
		return true
	}, 3*waitTimeout, 200*time.Millisecond, "all workflows run") // they are many
	env.stopPool(pool)
}
