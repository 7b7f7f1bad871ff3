package activities_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// runStart runs one attempt of Start after these failed ones.
func runStart(t *testing.T, earlier []api.FailedAttempt, r api.StartRequest) (result api.StartResult, err error) {
	t.Helper()
	return runStartWith(t, func(*process.Process) {}, earlier, r)
}

// runStartThatExits is runStart of a program that exits with code 3 between its being ready and its probation.
func runStartThatExits(t *testing.T, r api.StartRequest) (result api.StartResult, err error) {
	t.Helper()
	release := filepath.Join(t.TempDir(), "exit")
	r.Spec.Pool.Command = []string{"sh", "-c", `until [ -e "$0" ]; do sleep 0.01; done; exit 3`, release}
	return runStartWith(t, func(p *process.Process) {
		require.NoError(t, os.WriteFile(release, nil, 0o600))
		<-p.Done()
	}, nil, r)
}

func runStartWith(t *testing.T, started func(*process.Process), earlier []api.FailedAttempt,
	r api.StartRequest) (result api.StartResult, err error) {
	t.Helper()
	h, first := newHost(t, withoutProtocol, "sleep", "1000")
	h.DataPlane, h.Started = idleDataPlane{}, started
	if r.Spec.Pool.Name == "" {
		command := r.Spec.Pool.Command
		r.Spec = first.Spec()
		r.Spec.Pool.Command = command
	}
	return executeStart(h, earlier, r)
}

// executeStart runs one attempt of Start on the host after these failed ones.
func executeStart(h *activities.Host, earlier []api.FailedAttempt,
	r api.StartRequest) (result api.StartResult, err error) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(h.Start)
	if earlier != nil {
		env.SetHeartbeatDetails(api.FailedAttempts{Attempts: earlier})
	}
	value, err := env.ExecuteActivity(h.Start, r)
	if err == nil {
		err = value.Get(&result)
	}
	return result, err
}

func request(command ...string) api.StartRequest {
	r := api.StartRequest{Process: api.Process{Worker: "p/1", Incarnation: 3}, MaxAttempts: 4, Failures: 2,
		ShortLived: true}
	r.Spec.Pool.Command = command
	return r
}

func TestAFailedStartIsRetriedAndReportsAllAttempts(t *testing.T) {
	earlier := []api.FailedAttempt{{Incarnation: 2, Reason: "the first"}}
	r := request("/there/is/no/such/program")
	_, err := runStart(t, earlier, r)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, string(api.CodeStartFailed), failure.Type())
	require.False(t, failure.NonRetryable())
	require.InDelta(t, 300*time.Millisecond, failure.NextRetryDelay(), float64(31*time.Millisecond),
		"after the third failure in a row")
	var failed api.FailedAttempts
	require.NoError(t, failure.Details(&failed))
	require.Len(t, failed.Attempts, 2)
	require.Equal(t, "the first", failed.Attempts[0].Reason)
	require.EqualValues(t, 3, failed.Attempts[1].Incarnation)
	require.Contains(t, failed.Attempts[1].Next, "(failure 3 of 10)")
	require.Equal(t, failure.NextRetryDelay(), failed.Attempts[1].Wait.D())
}

// failedStarts counts the starts that have failed.
type failedStarts struct {
	noObserver
	n int
}

func (f *failedStarts) StartFailed(api.Process, error) { f.n++ }

func TestAStartThatBelongsToAnotherHostIsNoFailedStart(t *testing.T) {
	for code, counted := range map[api.Code]int{api.CodeNoWorkers: 0, api.CodeStoreUnavailable: 1} {
		h, first := newHost(t, withoutProtocol, "sleep", "1000")
		observer := &failedStarts{}
		h.Observer = observer
		h.Admit = func(context.Context, api.StartRequest) error { return api.Errorf(code, "not here") }
		r := request("sleep", "1000")
		r.Spec = first.Spec()
		_, err := executeStart(h, nil, r)
		require.ErrorContains(t, err, "not here")
		require.Equal(t, counted, observer.n, "%s", code)
	}
}

// A heartbeat costs Temporal two operations on its database.
func TestAStartThatIsOverSoonSendsNoHeartbeatButItsFailure(t *testing.T) {
	h, first := newHost(t, withoutProtocol, "sleep", "1000")
	h.Admit = func(context.Context, api.StartRequest) error { return api.Errorf(api.CodeStartFailed, "not here") }
	r := request("sleep", "1000")
	r.Spec = first.Spec()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(h.Start)
	var heartbeats []api.FailedAttempts
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var failed api.FailedAttempts
		require.NoError(t, details.Get(&failed))
		heartbeats = append(heartbeats, failed)
	})
	_, err := env.ExecuteActivity(h.Start, r)
	require.ErrorContains(t, err, "not here")
	require.Len(t, heartbeats, 1)
	require.Len(t, heartbeats[0].Attempts, 1)
}

func TestTheLastAttemptOfAStartIsNotRetried(t *testing.T) {
	r := request("/there/is/no/such/program")
	r.MaxAttempts = 1
	_, err := runStart(t, nil, r)
	requireType(t, err, api.CodeStartFailed)

	r = request("/there/is/no/such/program")
	r.Failures = 9
	_, err = runStart(t, nil, r)
	requireType(t, err, api.CodeStartFailed)
}

func TestAProcessThatExitsWithinItsProbationHasNotStarted(t *testing.T) {
	_, err := runStartThatExits(t, request())
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Contains(t, failure.Message(), "within its probation of 1s: exited with code 3")
}

func TestAProcessThatOutlivesItsProbationHasStarted(t *testing.T) {
	earlier := []api.FailedAttempt{{Incarnation: 2, Reason: "the first"}}
	began := time.Now()
	result, err := runStart(t, earlier, request("sleep", "1000"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	require.EqualValues(t, 3, result.Incarnation)
	require.Equal(t, "the first", result.Failed[0].Reason)

	r := request()
	r.Failures, r.ShortLived = 1, false
	_, err = runStartThatExits(t, r)
	require.NoError(t, err, "a first crash after a while asks for no probation")
}

func TestAStartContinuesWhileTemporalDoesNotAnswer(t *testing.T) {
	h, first := newHost(t, withoutProtocol, "sleep", "1000")
	h.DataPlane, h.Started = idleDataPlane{}, func(*process.Process) {}
	release := filepath.Join(t.TempDir(), "release")
	h.Temporal = heartbeats(func(ctx context.Context) error {
		_ = os.WriteFile(release, nil, 0o600) // now the process becomes ready
		deadline, _ := ctx.Deadline()
		assert.LessOrEqual(t, time.Until(deadline), time.Second, "the interval here: one that hangs must not delay the next")
		return serviceerror.NewDeadlineExceeded("no answer")
	})
	r := api.StartRequest{Process: api.Process{Worker: "p/1", Incarnation: 3}, MaxAttempts: 1}
	r.Spec = first.Spec()
	r.Spec.Health.Command = []string{"test", "-e", release}
	result, err := executeStart(h, nil, r)
	require.NoError(t, err)
	require.Positive(t, result.PID)
}

// Otherwise the next process would start as large, and would be rotated again.
func TestAProcessThatStartsAboveItsMemoryLimitHasNone(t *testing.T) {
	h, first := newHost(t, withoutProtocol, "sleep", "1000")
	h.DataPlane, h.Started = idleDataPlane{}, func(*process.Process) {}
	release := filepath.Join(t.TempDir(), "release")
	r := api.StartRequest{Process: api.Process{Worker: "p/1", Incarnation: 3}, MaxAttempts: 1,
		Rules: api.WatchRules{MaxMemoryBytes: 20e6}}
	r.Spec = first.Spec()
	// The large process has lost its parent.
	r.Spec.Pool.Command = []string{"sh", "-c",
		`(sh -c 'x=$(head -c 40000000 /dev/zero | tr "\0" x); echo >"$0"; while :; do sleep 1; done' "$0" &); ` +
			`until [ -e "$0" ]; do sleep 0.01; done; exec sleep 1000`, release}
	r.Spec.Health.Command = []string{"test", "-e", release}
	result, err := executeStart(h, nil, r)
	require.NoError(t, err)
	require.Greater(t, result.Sample.MemoryBytes, int64(40e6))
	require.Zero(t, result.Rules.MaxMemoryBytes)
}

// The workers of two pools of the same name may start the same incarnation: both ask before either has begun.
func TestTwoStartsOfOneIncarnationAreObservedUntilItEnds(t *testing.T) {
	h, first := newHost(t, withoutProtocol, "sleep", "1000")
	h.DataPlane, h.Started = idleDataPlane{}, func(*process.Process) {}
	var both sync.WaitGroup
	both.Add(2)
	h.Admit = func(context.Context, api.StartRequest) error {
		both.Done()
		both.Wait()
		return nil
	}
	r := api.StartRequest{Process: api.Process{Worker: "p/1", Incarnation: 3}, MaxAttempts: 1}
	r.Spec = first.Spec()
	var starting sync.WaitGroup
	for range 2 {
		starting.Go(func() {
			_, err := executeStart(h, nil, r)
			assert.NoError(t, err)
		})
	}
	starting.Wait()
	p, known := h.Processes.Get("p/1", 3)
	require.True(t, known)
	_, err := p.Stop(t.Context(), time.Second)
	require.NoError(t, err)
	h.WaitMonitors()
}
