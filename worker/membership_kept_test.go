package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// idleWorker is a Temporal worker that polls nothing.
type idleWorker struct{ sdkworker.Worker }

func (idleWorker) RegisterActivityWithOptions(any, activity.RegisterOptions) {}
func (idleWorker) Start() error                                              { return nil }
func (idleWorker) Stop()                                                     {}

// joining is the membership of an agent that has not joined yet.
func joining(announce func(context.Context, string, api.JoinRequest) (api.JoinResult, error)) *membership {
	return &membership{hostID: "h", log: slog.New(slog.DiscardHandler), remember: func(int64) {}, drain: func(bool) {},
		newWorker: func(string) sdkworker.Worker { return idleWorker{} }, announce: announce}
}

// The processes that an agent has taken over end with it, and a host may wait for a task of its workflow.
func TestAnAgentTriesToJoinForTwoMinutes(t *testing.T) {
	kept := []api.Process{{Worker: "p/0", Incarnation: 1}}
	unavailable := api.Errorf(api.CodeUnavailable, "Temporal does not answer")
	taken := api.Errorf(api.CodeHostTaken, "another agent holds it")
	for name, c := range map[string]struct {
		kept    []api.Process
		refusal error
		away    time.Duration
		code    api.Code // of the error; "" is none
	}{
		"an outage":                      {nil, unavailable, joinLimit - time.Minute, ""},
		"with processes":                 {kept, unavailable, joinLimit - time.Minute, ""},
		"a longer outage":                {nil, unavailable, time.Hour, api.CodeUnavailable},
		"longer than processes are kept": {kept, unavailable, time.Hour, api.CodeUnavailable},
		"on a host that is taken":        {kept, taken, joinTimeout + time.Minute, api.CodeHostTaken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				m := joining(func(context.Context, string, api.JoinRequest) (api.JoinResult, error) {
					if time.Since(began) < c.away {
						return api.JoinResult{}, c.refusal
					}
					return api.JoinResult{Epoch: 1}, nil
				})
				m.request.Kept = c.kept
				err := m.joinFirst(t.Context())
				if c.code == "" {
					require.NoError(t, err)
					require.EqualValues(t, 1, m.epoch())
					return
				}
				require.Equal(t, c.code, api.CodeOf(err), "%v", err)
				limit := joinTimeout
				if c.code == api.CodeUnavailable {
					limit = joinLimit
				}
				require.Equal(t, limit, time.Since(began))
			})
		})
	}
}

// A join is several requests, one after another.
func TestAnAgentJoinsAlthoughTemporalAnswersSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := joining(func(ctx context.Context, _ string, _ api.JoinRequest) (api.JoinResult, error) {
			select {
			case <-ctx.Done():
				return api.JoinResult{}, api.Errorf(api.CodeUnavailable, "join: %w", ctx.Err())
			case <-time.After(3 * joinAttempt):
				return api.JoinResult{Epoch: 1}, nil
			}
		})
		require.NoError(t, m.joinFirst(t.Context()))
	})
}

// leavingTemporal takes only the request to leave, and counts those that come in time.
type leavingTemporal struct {
	client.Client
	left int
}

func (l *leavingTemporal) UpdateWorkflow(ctx context.Context, _ client.UpdateWorkflowOptions) (
	client.WorkflowUpdateHandle, error) {
	if ctx.Err() == nil {
		l.left++
	}
	return nil, errors.New("no answer")
}

func (l *leavingTemporal) QueryWorkflowWithOptions(context.Context, *client.QueryWorkflowWithOptionsRequest) (
	*client.QueryWorkflowWithOptionsResponse, error) {
	return nil, errors.New("no answer")
}

func (l *leavingTemporal) Close() {}

// Otherwise the host would be lost before the next agent could take over the processes that are kept.
func TestAnAgentLeavesAlthoughItsOtherEndsTookTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		temporal := &leavingTemporal{}
		connected := tempool.NewClient(temporal, "default")
		a := &Agent{log: log, client: connected, stopBackground: func() {}, traces: &traces{},
			membership: &membership{client: connected, hostID: "h", log: log, stop: func() {}, worker: idleWorker{}},
			outbox: newOutbox(func(ctx context.Context, _, _ string, _ any, _ string) error {
				<-ctx.Done()
				return ctx.Err()
			}, nil, log)}
		a.outbox.notify("p/0", "run", api.ProcessEvent{})
		require.NoError(t, a.release(t.Context(), false))
		require.Equal(t, 1, temporal.left)
	})
}
