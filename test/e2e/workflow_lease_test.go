package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/tempoolworkflow"
)

// leaseWorkflow is a user's workflow that calls a leased worker, which counts its calls, twice, and then does what then
// says. The query "lease" says which one it has.
func leaseWorkflow(ctx workflow.Context, then string) (counts []int, err error) {
	var leased api.Lease
	if err := workflow.SetQueryHandler(ctx, "lease", func() (api.Lease, error) { return leased, nil }); err != nil {
		return nil, err
	}
	err = tempoolworkflow.WithLease(ctx, "leased", func(ctx workflow.Context, lease api.Lease) error {
		for range 2 {
			count, err := tempoolworkflow.ExecuteUnder[int](ctx, lease, "count", lease.ID)
			if err != nil {
				return err
			}
			counts = append(counts, count)
		}
		leased = lease
		switch then {
		case "fail":
			return errors.New("as the test says")
		case "panic":
			panic("as the test says")
		case "wait":
			return workflow.Sleep(ctx, time.Hour)
		case "die":
			if _, err := tempoolworkflow.ExecuteUnder[any](ctx, lease, "die", nil); err == nil {
				return errors.New("a worker that has died answers")
			}
			_, err := tempoolworkflow.ExecuteUnder[int](ctx, lease, "count", lease.ID)
			return err
		}
		return nil
	})
	return counts, err
}

type leaseTest struct {
	*testEnv
	pool *tempool.Pool
}

func (l leaseTest) start(then string) client.WorkflowRun {
	l.t.Helper()
	return l.execute(fmt.Sprintf("%s-%d", then, time.Now().UnixNano()), userTaskQueue, "leaseWorkflow", then)
}

// leaseOf waits until a workflow has called its worker, and returns its lease.
func (l leaseTest) leaseOf(run client.WorkflowRun) (lease api.Lease) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		answer, err := l.client.Temporal().QueryWorkflow(l.t.Context(), run.GetID(), "", "lease")
		return err == nil && answer.Get(&lease) == nil && lease.ID != ""
	}, waitTimeout, 20*time.Millisecond)
	return lease
}

// free waits until both workers are free, and returns their incarnations.
func (l leaseTest) free() (incarnations [2]int64) {
	l.t.Helper()
	v := l.waitFor(l.pool, "both workers are free", func(v api.PoolWorkers) bool {
		return v.Workers[0].State == lifecycle.Ready && v.Workers[1].State == lifecycle.Ready
	})
	for i, w := range v.Workers {
		incarnations[i] = w.Incarnation
	}
	return incarnations
}

// A workflow's lease is on whichever host has a free worker, counts while the workflow needs it, and is returned
// however the workflow ends.
func TestAWorkflowLeasesAWorker(t *testing.T) {
	env := newEnv(t)
	for _, host := range []string{"left", "right"} {
		env.startAgent(host, "--capacity", "1")
	}
	env.startUserWorker()
	s := env.troubleSpec("leased", 2)
	s.Lease.TTL = spec.Duration(40 * time.Second) // which its host renews in time, also if it stalls
	l := leaseTest{env, env.startPool(s)}
	before := l.free()
	var runs []client.WorkflowRun
	run := func(then string) client.WorkflowRun {
		runs = append(runs, l.start(then))
		return runs[len(runs)-1]
	}
	failsWith := func(run client.WorkflowRun, code api.Code) {
		t.Helper()
		var failure *temporal.ApplicationError
		require.ErrorAs(t, run.Get(t.Context(), nil), &failure)
		require.Equal(t, string(code), failure.Type())
	}

	// Two leases take both hosts' workers; the third waits in Temporal for the first that is returned.
	first, second := run("wait"), run("wait")
	lease := l.leaseOf(first)
	require.NotEqual(t, lease.Host, l.leaseOf(second).Host)
	require.Equal(t, first.GetID(), lease.Holder)
	third := run("return")
	_, slot, err := api.ParseWorkerName(lease.Worker)
	require.NoError(t, err)
	env.waitWorker(l.pool, slot, "is not renewed by its host", func(w api.WorkerState) bool { // although nobody calls
		return w.Lease != nil && w.Lease.ID == lease.ID && w.Lease.ExpiresAt.After(lease.ExpiresAt)
	})
	env.cancel(first.GetID())
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, first.Get(t.Context(), nil), &cancelled)
	var counts []int
	require.NoError(t, third.Get(t.Context(), &counts))
	require.Equal(t, []int{1, 2}, counts)
	failed := run("fail")
	require.ErrorContains(t, failed.Get(t.Context(), nil), "as the test says")
	env.cancel(second.GetID())
	require.ErrorAs(t, second.Get(t.Context(), nil), &cancelled)
	require.Equal(t, before, l.free(), "a lease that was returned costs no process")

	failsWith(run("die"), api.CodeLeaseFenced)
	l.free()
	idle := run("wait")
	lost := l.leaseOf(idle)
	_, slot, err = api.ParseWorkerName(lost.Worker)
	require.NoError(t, err)
	state, err := l.pool.State(t.Context(), slot)
	require.NoError(t, err)
	killProcess(t, state.PID)
	failsWith(idle, api.CodeLeaseFenced)

	// What cannot return its worker leaves that to the host, which has it replaced.
	before = l.free()
	require.Error(t, l.start("panic").Get(t.Context(), nil)) // not replayed
	abandoned := run("wait")
	l.leaseOf(abandoned)
	env.terminate(abandoned.GetID())
	l.waitFor(l.pool, "two workers are replaced, or one twice", func(v api.PoolWorkers) bool {
		return v.Workers[0].Incarnation+v.Workers[1].Incarnation == before[0]+before[1]+2
	})
	l.free()

	replayer := sdkworker.NewWorkflowReplayer()
	replayer.RegisterWorkflow(leaseWorkflow)
	for _, run := range runs {
		events, err := l.readHistory(t.Context(), run.GetID(), run.GetRunID())
		require.NoError(t, err)
		all := &history.History{Events: events}
		require.NoError(t, replayer.ReplayWorkflowHistory(nil, all), protojson.Format(all))
	}
}
