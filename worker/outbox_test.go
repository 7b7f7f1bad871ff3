package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/lifecycle"
)

// mail is what an outbox has delivered.
type mail struct {
	mu       sync.Mutex
	messages []any
	to       []string
	failures []error // of the next attempts
	attempts int
	requests []string // of the attempts
}

func (m *mail) signal(_ context.Context, workflowID, name string, message any, requestID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts++
	m.requests = append(m.requests, requestID)
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
	return newOutbox(m.signal, func() api.ProcessesStarted { return api.ProcessesStarted{Host: "h", Epoch: 2} },
		slog.New(slog.DiscardHandler))
}

// heldOutbox returns an outbox whose messages wait for release, but those to pool q, and what says that one waits.
func heldOutbox(m *mail) (o *outbox, waits, release chan struct{}) {
	waits, release = make(chan struct{}, 1), make(chan struct{})
	return newOutbox(func(ctx context.Context, id, name string, message any, requestID string) error {
		if id != api.PoolWorkflowID("q") {
			select {
			case waits <- struct{}{}:
			default:
			}
			<-release
		}
		return m.signal(ctx, id, name, message, requestID)
	}, nil, slog.New(slog.DiscardHandler)), waits, release
}

func closeOutbox(t *testing.T, o *outbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
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
	require.Equal(t, slices.Repeat(m.requests[:1], 3), m.requests, "Temporal takes it once")
	o = newTestOutbox(m)
	o.notify("p/1", "run", exited(4))
	closeOutbox(t, o)
	require.NotContains(t, m.requests[:3], m.requests[3], "another message is another request")
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
	m := &mail{}
	o, waits, release := heldOutbox(m)
	failed := func(reason string) api.ProcessEvent {
		return api.ProcessEvent{Incarnation: 1, WatchResult: api.WatchResult{Event: api.WatchProbeFailed, Reason: reason}}
	}
	o.notify("p/1", "run", failed("first"))
	<-waits
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

func TestAnOutboxReportsTheStartsOfALargePoolInFewMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan int)
		o := newOutbox(func(_ context.Context, _, _ string, message any, _ string) error {
			sent <- len(message.(api.ProcessesStarted).Processes)
			return nil
		}, func() api.ProcessesStarted { return api.ProcessesStarted{} }, slog.New(slog.DiscardHandler))
		for _, c := range []struct {
			processes int
			after     time.Duration
		}{{1, announceDelay}, {12, announceDelay}, {100, 12 * announceEach}, {2, announceMaxDelay}, {1, announceDelay}} {
			for slot := range c.processes {
				o.announce(api.WorkerName("p", slot), api.StartedProcess{Incarnation: 1, State: lifecycle.Ready})
			}
			began := time.Now()
			require.Equal(t, c.processes, <-sent)
			require.Equal(t, c.after, time.Since(began), "%d processes", c.processes)
		}
		closeOutbox(t, o)
	})
}

// TestAMessageThatIsRefusedForGoodHoldsUpNoOther: it is dropped, and the log says so.
func TestAMessageThatIsRefusedForGoodHoldsUpNoOther(t *testing.T) {
	for _, refusal := range []error{
		serviceerror.NewInvalidArgument("too large"), serviceerror.NewPermissionDenied("not yours", ""),
		fmt.Errorf("%w: a channel", errNotEncoded),
	} {
		m, log := &mail{failures: []error{refusal}}, &logtest.Log{}
		o := newTestOutbox(m)
		o.log = slog.New(slog.NewTextHandler(log, nil))
		o.notify("p/1", "run", exited(3))
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "message refused") }, time.Minute,
			time.Millisecond)
		o.notify("p/1", "run", exited(4))
		closeOutbox(t, o)
		require.Equal(t, []any{api.ProcessEvents{RunID: "run", Events: []api.ProcessEvent{exited(4)}}}, m.messages)
		require.Equal(t, 2, m.attempts)
	}
}

// TestReportsOfPressureWaitForTemporalAndForNoOtherPool: while one pool's report is on its way, the newest of each pool
// is kept.
func TestReportsOfPressureWaitForTemporalAndForNoOtherPool(t *testing.T) {
	m := &mail{}
	o, waits, release := heldOutbox(m)
	report := func(pool, level string) { o.pressed(pool, api.MemoryPressure{Level: level}) }
	report("p", "medium")
	<-waits
	report("p", "high")
	report("p", "none")
	report("q", "high")
	require.Eventually(t, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.to) == 1 }, time.Minute,
		time.Millisecond)
	require.Equal(t, []string{"tempool/q memory-pressure"}, m.to)
	close(release)
	closeOutbox(t, o)
	require.Equal(t, []any{api.MemoryPressure{Level: "high"}, api.MemoryPressure{Level: "medium"},
		api.MemoryPressure{Level: "none"}}, m.messages)
}

func TestChangedFilesAreReportedTogetherAndABoundedNumberIsNamed(t *testing.T) {
	m := &mail{}
	o, waits, release := heldOutbox(m)
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprint("file", i))
	}
	o.changed("p", "h", many)
	<-waits
	o.changed("p", "h", append(many, "another"))
	o.changed("p", "h", many)
	close(release)
	closeOutbox(t, o)
	require.Equal(t, slices.Repeat([]string{"tempool/p files-changed"}, 2), m.to)
	require.Equal(t, []any{
		api.FilesChanged{Pool: "p", Host: "h", Files: many[:maxReportedFiles], More: 5000 - maxReportedFiles},
		api.FilesChanged{Pool: "p", Host: "h", Files: append([]string{"another"}, many[:maxReportedFiles-1]...),
			More: 5001 - maxReportedFiles},
	}, m.messages)
}
