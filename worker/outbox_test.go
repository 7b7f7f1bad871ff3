package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// mail is what an outbox has delivered.
type mail struct {
	mu       sync.Mutex
	messages []any
	to       []string
	failures []error // of the next attempts
	attempts int
}

func (m *mail) signal(_ context.Context, workflowID, name string, message any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts++
	if len(m.failures) > 0 {
		err := m.failures[0]
		m.failures = m.failures[1:]
		return err
	}
	m.messages = append(m.messages, message)
	m.to = append(m.to, workflowID+" "+name)
	return nil
}

func newTestOutbox(m *mail) *outbox {
	return newOutbox(m.signal, func() api.ProcessesStarted { return api.ProcessesStarted{Host: "h", Epoch: 2} }, slog.New(slog.DiscardHandler))
}

func closeOutbox(t *testing.T, o *outbox) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.close(ctx)
	require.NoError(t, ctx.Err())
}

func exited(incarnation int64) api.ProcessEvent {
	return api.ProcessEvent{Incarnation: incarnation, WatchResult: api.WatchResult{Event: api.WatchExited}}
}

func TestAnOutboxRepeatsAMessageUntilItIsAccepted(t *testing.T) {
	m := &mail{failures: []error{errors.New("no server"), errors.New("no server")}}
	o := newTestOutbox(m)
	o.notify("p/1", "run", exited(3))
	closeOutbox(t, o)
	require.Equal(t, []string{"tempool/p/1 process-events"}, m.to)
	require.Equal(t, []any{api.ProcessEvents{RunID: "run", Events: []api.ProcessEvent{exited(3)}}}, m.messages)
	require.Equal(t, 3, m.attempts)
}

func TestAnOutboxGivesUpAWorkflowThatHasClosed(t *testing.T) {
	m := &mail{failures: []error{serviceerror.NewNotFound("closed")}}
	o := newTestOutbox(m)
	o.notify("p/1", "run", exited(3))
	closeOutbox(t, o)
	require.Empty(t, m.messages)
	require.Equal(t, 1, m.attempts)
}

func TestAnOutboxKeepsTheNewestOfAKindWhileTemporalIsAway(t *testing.T) {
	blocked, release := make(chan struct{}, 1), make(chan struct{})
	m := &mail{}
	o := newOutbox(func(ctx context.Context, id, name string, message any) error {
		select {
		case blocked <- struct{}{}:
			<-release
		default:
		}
		return m.signal(ctx, id, name, message)
	}, nil, slog.New(slog.DiscardHandler))
	failed := func(reason string) api.ProcessEvent {
		return api.ProcessEvent{Incarnation: 1, WatchResult: api.WatchResult{Event: api.WatchProbeFailed, Reason: reason}}
	}
	o.notify("p/1", "run", failed("first"))
	require.Eventually(t, func() bool { return len(blocked) == 1 }, time.Minute, time.Millisecond)
	o.notify("p/1", "run", failed("second"))
	o.notify("p/1", "run", failed("third"))
	o.notify("p/1", "run", exited(1))
	close(release)
	closeOutbox(t, o)
	require.Equal(t, []any{
		api.ProcessEvents{RunID: "run", Events: []api.ProcessEvent{failed("first")}},
		api.ProcessEvents{RunID: "run", Events: []api.ProcessEvent{failed("third"), exited(1)}},
	}, m.messages)
}

func TestAnOutboxReportsTheStartsOfAPoolTogether(t *testing.T) {
	m := &mail{}
	o := newTestOutbox(m)
	o.announce("p/1", api.StartedProcess{Incarnation: 1, State: lifecycle.Starting})
	o.announce("p/2", api.StartedProcess{Incarnation: 1, State: lifecycle.Starting})
	o.announce("p/1", api.StartedProcess{Incarnation: 1, State: lifecycle.Ready})
	closeOutbox(t, o)
	require.Equal(t, []string{"tempool/p processes-started"}, m.to)
	report := m.messages[0].(api.ProcessesStarted)
	require.Equal(t, "h", report.Host)
	require.EqualValues(t, 2, report.Epoch)
	require.ElementsMatch(t, []api.StartedProcess{
		{Slot: 1, Incarnation: 1, State: lifecycle.Ready}, {Slot: 2, Incarnation: 1, State: lifecycle.Starting},
	}, report.Processes)
}
