package activities_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// sleepingHost returns a host, and a request to start incarnation 3 of p/1 on it.
func sleepingHost(t *testing.T) (*activities.Host, api.StartRequest) {
	t.Helper()
	h, first := newHost(t, withoutProtocol, "sleep", "1000")
	return h, api.StartRequest{Process: api.Process{Worker: "p/1", Incarnation: 3}, Spec: first.Spec()}
}

// startThatExits starts a program that exits with code 3 between its being ready and its probation.
func startThatExits(t *testing.T, h *activities.Host, r api.StartRequest) error {
	t.Helper()
	release := filepath.Join(t.TempDir(), "exit")
	r.Spec.Pool.Command = []string{"sh", "-c", `until [ -e "$0" ]; do sleep 0.01; done; exit 3`, release}
	h.Started = func(p *process.Process) {
		p.Served().Restore(api.Usage{Requests: 2})
		p.Served().InFlight.Add(1)
		p.AfterEnd(func() {
			p.Served().Add(true, time.Second)
			p.Served().InFlight.Add(-1)
		})
		require.NoError(t, os.WriteFile(release, nil, 0o600))
		<-p.Done()
	}
	_, err := executeStart(h, r)
	return err
}

func executeStart(h *activities.Host, r api.StartRequest) (result api.StartResult, err error) {
	err = activities.RunActivity(h.Start, r, &result)
	return result, err
}

func TestTheWorkerDecidesAfterAFailedStart(t *testing.T) {
	h, r := sleepingHost(t)
	r.Spec.Pool.Command = []string{"/there/is/no/such/program"}
	_, err := executeStart(h, r)
	activities.RequireNonRetryable(t, err, api.CodeStartFailed)
}

// failedStarts counts the starts that have failed.
type failedStarts struct {
	noObserver
	n int
}

func (f *failedStarts) StartFailed(api.Process, error) { f.n++ }

func TestAStartThatBelongsToAnotherHostIsNoFailedStart(t *testing.T) {
	for code, counted := range map[api.Code]int{api.CodeNoWorkers: 0, api.CodeStoreUnavailable: 1} {
		h, r := sleepingHost(t)
		observer := &failedStarts{}
		h.Observer = observer
		h.Admit = func(context.Context, api.StartRequest) error { return api.Errorf(code, "not here") }
		_, err := executeStart(h, r)
		require.ErrorContains(t, err, "not here")
		require.Equal(t, counted, observer.n, "%s", code)
	}
}

// Otherwise the upgrade of one host would end workers that never restart, and open the breakers of pools.
func TestAStartThatIsCutByTheStopOfItsAgentIsNoFailedStart(t *testing.T) {
	h, r := sleepingHost(t)
	observer := &failedStarts{}
	h.Observer = observer
	agent, stop := context.WithCancelCause(t.Context())
	h.TraceStart = func(context.Context, api.Process) func(error) {
		stop(sdkworker.ErrWorkerShutdown)
		return func(error) {}
	}
	r.Spec.Health.Command = []string{"false"} // never ready
	err := activities.RunActivity(h.Start, r, nil, sdkworker.Options{BackgroundActivityContext: agent})
	activities.RequireNonRetryable(t, err, api.CodeNoWorkers)
	require.Zero(t, observer.n)
}

// A heartbeat costs Temporal two operations on its database.
func TestAStartThatIsOverSoonSendsNoHeartbeat(t *testing.T) {
	h, r := sleepingHost(t)
	h.Admit = func(context.Context, api.StartRequest) error { return api.Errorf(api.CodeStartFailed, "not here") }
	began := time.Now()
	h.Temporal = heartbeats(func(context.Context) error {
		if time.Since(began) < time.Second {
			t.Error("a heartbeat")
		}
		return nil
	})
	_, err := executeStart(h, r)
	require.ErrorContains(t, err, "not here")
}

func TestAnActivityHeartbeatsUntilItEnds(t *testing.T) {
	sent := make(chan bool, 1)
	client := heartbeats(func(context.Context) error {
		select {
		case sent <- true:
		default:
		}
		return nil
	})
	waits := activities.Heartbeating(client, func(ctx context.Context, _ string) (bool, error) {
		select {
		case answer := <-sent:
			return answer, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	})
	var answer bool
	require.NoError(t, activities.RunActivity(waits, "", &answer))
	require.True(t, answer)
}

func TestAProcessThatExitsWithinItsProbationHasNotStarted(t *testing.T) {
	h, r := sleepingHost(t)
	r.Failures, r.ShortLived = 2, true
	err := startThatExits(t, h, r)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Contains(t, failure.Message(), "within its probation of 500ms: exited with code 3")
	var details api.StartFailedDetails
	require.NoError(t, failure.Details(&details))
	require.EqualValues(t, 3, details.Usage.Requests, "so does the call that ended with it")
}

func TestAProcessThatOutlivesItsProbationHasStarted(t *testing.T) {
	h, r := sleepingHost(t)
	r.Failures, r.ShortLived = 2, true
	began := time.Now()
	_, err := executeStart(h, r)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), time.Second/2)

	r.Incarnation, r.Failures, r.ShortLived = 4, 1, false
	require.NoError(t, startThatExits(t, h, r), "a first crash after a while asks for no probation")
}

func TestAStartContinuesWhileTemporalDoesNotAnswer(t *testing.T) {
	h, r := sleepingHost(t)
	release := filepath.Join(t.TempDir(), "release")
	h.Temporal = heartbeats(func(ctx context.Context) error {
		_ = os.WriteFile(release, nil, 0o600) // now the process becomes ready
		deadline, _ := ctx.Deadline()
		assert.LessOrEqual(t, time.Until(deadline), time.Second, "the interval here: one that hangs must not delay the next")
		return serviceerror.NewDeadlineExceeded("no answer")
	})
	r.Spec.Health.Command = []string{"test", "-e", release}
	result, err := executeStart(h, r)
	require.NoError(t, err)
	require.Positive(t, result.PID)
}

// Otherwise the next process would start as large, and would be rotated again.
func TestAProcessThatStartsAboveItsMemoryLimitHasNone(t *testing.T) {
	h, r := sleepingHost(t)
	release := filepath.Join(t.TempDir(), "release")
	r.Rules.MaxMemoryBytes = 20e6
	// The large process has lost its parent.
	r.Spec.Pool.Command = []string{"sh", "-c",
		`(sh -c 'x=$(head -c 40000000 /dev/zero | tr "\0" x); echo >"$0"; while :; do sleep 1; done' "$0" &); ` +
			`until [ -e "$0" ]; do sleep 0.01; done; exec sleep 1000`, release}
	r.Spec.Health.Command = []string{"test", "-e", release}
	result, err := executeStart(h, r)
	require.NoError(t, err)
	require.Greater(t, result.Sample.MemoryBytes, int64(40e6))
	require.Zero(t, result.Rules.MaxMemoryBytes)
}

// The workers of two pools of the same name may start the same incarnation: both ask before either has begun.
func TestOnlyOneOfTwoStartsOfAnIncarnationHasItsProcess(t *testing.T) {
	h, r := sleepingHost(t)
	var both sync.WaitGroup
	both.Add(2)
	h.Admit = func(context.Context, api.StartRequest) error {
		both.Done()
		both.Wait()
		return nil
	}
	var starting sync.WaitGroup
	var errs [2]error
	for i := range errs {
		starting.Go(func() { _, errs[i] = executeStart(h, r) })
	}
	starting.Wait()
	require.Contains(t, errs, error(nil))
	require.ErrorContains(t, errors.Join(errs[:]...), "the next incarnation is 4")
	p, known := h.Processes.Get("p/1", 3)
	require.True(t, known)
	_, err := p.Stop(t.Context(), time.Second)
	require.NoError(t, err)
	h.WaitMonitors()
}
