package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

const testDeployment = "tempool"

func (env *testEnv) startBuild(hostID, build string) *agent {
	return env.startAgent(hostID, "--capacity", "4", "--deployment", testDeployment, "--build-id", build)
}

// promote makes a build the current version of the deployment, as temporal worker deployment set-current-version does.
func (env *testEnv) promote(build string) {
	env.t.Helper()
	handle := env.client.Temporal().WorkerDeploymentClient().GetHandle(testDeployment)
	env.repeat(func(ctx context.Context) error {
		_, err := handle.SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err
	})
}

// waitBuild waits until workflows run on a build.
func (env *testEnv) waitBuild(build string, workflows ...string) {
	env.t.Helper()
	env.waitBuildOf(func() {}, build, workflows...)
}

// waitBuildOf is waitBuild for workflows that have a task only if step gives them one.
func (env *testEnv) waitBuildOf(step func(), build string, workflows ...string) {
	env.t.Helper()
	for _, id := range workflows {
		var last string
		require.Eventually(env.t, func() bool {
			step()
			answer, err := env.client.Temporal().DescribeWorkflowExecution(env.t.Context(), id, "")
			last = answer.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId()
			return err == nil && last == build
		}, waitTimeout, 100*time.Millisecond, "%s runs on build %s, not on %s", id, &last, build)
	}
}

// A pool is upgraded from one build to another and back while holders take leases and callers call: the first agent,
// then the current version, then the second agent.
func TestAPoolMovesToAnotherBuildUnderLoadAndBack(t *testing.T) {
	env := newEnv(t)
	agents := map[string]*agent{"one": env.startBuild("one", "1.0"), "two": env.startBuild("two", "1.0")}
	s := echoSpec("upgraded", 4)
	s.Rotation.MaxRequests, s.Rotation.DrainTimeout = 0, spec.Duration(waitTimeout)
	pool := env.startPool(s)
	ids := []string{api.PoolWorkflowID("upgraded")}
	for slot := range s.Pool.Size {
		ids = append(ids, api.WorkerWorkflowID("upgraded", slot))
	}
	env.waitBuild("1.0", ids...)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	leases := &leaseLoad{pool: pool}
	group.Go(func() { leases.run(ctx, "holder") })
	answered := echoCallers(ctx, t, &group, pool)
	for _, build := range []string{"2.0", "1.0"} {
		agents["one"].stop()
		agents["one"] = env.startBuild("one", build)
		awaitMore(t, "one agent of build "+build, 10, answered, &leases.granted)
		before := env.waitFor(pool, "all workers have a process",
			func(v api.PoolWorkers) bool { return inService(v) == s.Pool.Size })
		env.promote(build)
		awaitMore(t, "build "+build+" is current", 10, answered, &leases.granted)
		env.waitBuild(build, ids[1:]...)
		after := env.waitFor(pool, "all workers have a process",
			func(v api.PoolWorkers) bool { return inService(v) == s.Pool.Size })
		for i := range before.Workers {
			require.Equal(t, before.Workers[i].PID, after.Workers[i].PID, "another build restarts no process: %v",
				env.history(pool, i))
		}
		agents["two"].stop()
		agents["two"] = env.startBuild("two", build)
		awaitMore(t, "two agents of build "+build, 10, answered, &leases.granted)
	}
	cancel()
	group.Wait()
	leases.requireExclusive(t)
	env.waitReady(pool, s.Pool.Size)
	env.restart(pool, api.RestartRequest{Reason: "so that the pool has a workflow task"})
	env.waitBuild("1.0", ids...)
	env.waitFor(pool, "the workers have restarted",
		func(v api.PoolWorkers) bool { return v.Rollout == nil && v.Ready == s.Pool.Size })
	t.Logf("%d calls, %d leases", answered.Load(), leases.granted.Load())
}

func TestWorkflowsOfUnversionedAgentsMoveToADeploymentAndBack(t *testing.T) {
	env := oneHost(t, "plain", "--capacity", "1")
	pool := env.startPool(echoSpec("moving", 1))
	worker := api.WorkerWorkflowID("moving", 0)
	before := env.waitState(pool, 0, lifecycle.Ready)
	lease := func() { require.NoError(t, leaseOnce(t.Context(), pool)) }
	versioned := env.startBuild("versioned", "1.0")
	deployment := env.client.Temporal().WorkerDeploymentClient().GetHandle(testDeployment)
	require.Eventually(t, func() bool {
		answer, err := deployment.Describe(t.Context(), client.WorkerDeploymentDescribeOptions{})
		return err == nil && answer.Info.RoutingConfig.CurrentVersion != nil
	}, waitTimeout, 50*time.Millisecond, "the first build of a deployment is current")
	env.waitBuildOf(lease, "1.0", worker) // the task queues learn of the version a moment later
	env.repeat(func(ctx context.Context) error {
		_, err := deployment.SetCurrentVersion(ctx,
			client.WorkerDeploymentSetCurrentVersionOptions{IgnoreMissingTaskQueues: true})
		return err
	})
	versioned.stop()
	env.waitBuildOf(lease, "", worker)
	require.Equal(t, before.PID, env.waitState(pool, 0, lifecycle.Ready).PID,
		"the process of the unversioned agent served all along")
}

// echoCallers starts four callers in the group, who call until ctx ends. Each call that a worker starts must be
// answered. It returns the number of answers so far.
func echoCallers(ctx context.Context, t *testing.T, group *sync.WaitGroup, pool *tempool.Pool) *atomic.Int64 {
	answered := new(atomic.Int64)
	for i := range 4 {
		group.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond) // leaves the machine to the agents that start
			defer pace.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				<-pace.C
				body := fmt.Sprintf(`"caller %d, call %d"`, i, n)
				answer, err := callUntilStarted(t.Context(), pool, "echo", []byte(body))
				if !assert.NoError(t, err, "no call fails") || !assert.Equal(t, body, string(answer)) {
					return
				}
				answered.Add(1)
			}
		})
	}
	return answered
}

// await receives a value, or fails the test.
func await[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(waitTimeout):
		require.FailNow(t, "timed out")
	}
	return value
}

// awaitMore waits until each count has grown by so much: what they count continues.
func awaitMore(t *testing.T, what string, by int64, counts ...*atomic.Int64) {
	t.Helper()
	var until []int64 // all from the same moment
	for _, count := range counts {
		until = append(until, count.Load()+by)
	}
	for i, count := range counts {
		require.Eventually(t, func() bool { return count.Load() >= until[i] }, waitTimeout, 5*time.Millisecond, what)
	}
}

// callUntilStarted repeats a call while no worker has started it: an agent that is replaced takes its workers
// elsewhere, and they start there first.
func callUntilStarted(ctx context.Context, pool *tempool.Pool, method string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		answer, err := pool.CallRaw(ctx, method, body)
		var coded *api.Error
		if !errors.As(err, &coded) || coded.Started || ctx.Err() != nil {
			return answer, err
		}
		wait(ctx, 20*time.Millisecond)
	}
}

// inService counts the workers with a process that serves.
func inService(v api.PoolWorkers) (n int) {
	for _, worker := range v.Workers {
		if worker.State.InService() {
			n++
		}
	}
	return n
}

// formatHeader marks the workflows that a client starts as runs of a newer build.
type formatHeader struct {
	interceptor.ClientInterceptorBase
	interceptor.ClientOutboundInterceptorBase
}

func (f *formatHeader) InterceptClient(
	next interceptor.ClientOutboundInterceptor,
) interceptor.ClientOutboundInterceptor {
	f.Next = next
	return f
}

func (f *formatHeader) ExecuteWorkflow(ctx context.Context,
	in *interceptor.ClientExecuteWorkflowInput) (client.WorkflowRun, error) {
	mark, err := converter.GetDefaultDataConverter().ToPayload(1_000_000)
	if err != nil {
		return nil, err
	}
	interceptor.Header(ctx)["tempool-state-format"] = mark
	return f.Next.ExecuteWorkflow(ctx, in)
}

func TestAnAgentLeavesARunOfANewerBuildToANewerAgent(t *testing.T) {
	env := newEnv(t)
	old := env.startAgent("old")
	newer, err := client.Dial(client.Options{
		HostPort: env.server.Address(), Namespace: env.server.Namespace(), Logger: newDiscardLogger(),
		Interceptors: []interceptor.ClientInterceptor{&formatHeader{}},
	})
	require.NoError(t, err)
	defer newer.Close()
	user := tempool.NewClient(newer, env.server.Namespace())
	defer user.Close()
	require.NoError(t, user.StartPool(t.Context(), api.PoolStart{Pool: "newer", Spec: echoSpec("newer", 1)}))

	id := api.PoolWorkflowID("newer")
	require.Eventually(t, func() bool { return env.hasEvent(id, enums.EVENT_TYPE_WORKFLOW_TASK_FAILED) }, waitTimeout,
		50*time.Millisecond)
	answer, err := newer.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, answer.GetWorkflowExecutionInfo().GetStatus(),
		"it waits for a newer agent")
	old.waitForLog("an agent with a newer build continues it")
	require.Eventually(t, func() bool { // Temporal refuses queries after some failed tasks; until then they wait
		_, err = user.Pool("newer").Status(t.Context())
		return api.CodeOf(err) == api.CodeUnavailable && strings.Contains(err.Error(), "older build")
	}, waitTimeout, 50*time.Millisecond, "the caller gets what the agent's log says: %v", &err)
	env.terminate(id)
}
