package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// eventStream collects the events of one agent.
type eventStream struct {
	t *testing.T

	mu     sync.Mutex
	events []api.Event
}

// followEvents collects the events that an agent holds and those from now on.
func (env *testEnv) followEvents(host string) *eventStream {
	env.t.Helper()
	events := env.clientOf(host).Events(env.t.Context(), tempool.EventOptions{Since: time.Unix(1, 0), Follow: true})
	s := &eventStream{t: env.t}
	go func() {
		for event, err := range events {
			if err == nil { // else the agent stops
				s.add(event)
			}
		}
	}()
	return s
}

func (s *eventStream) add(events ...api.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, events...)
}

// steps describe the events of a worker: its transitions as from>to, all others by their type.
func (s *eventStream) steps(worker string) (steps []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Source != api.WorkerSource(worker) {
			continue
		}
		step := e.Type
		if e.Type == api.EventWorkerTransitioned {
			var t api.TransitionEvent
			if err := json.Unmarshal(e.Data, &t); err != nil {
				s.t.Errorf("data of %+v: %v", e, err)
			}
			step = string(t.From) + ">" + string(t.To)
		}
		steps = append(steps, step)
	}
	return steps
}

// await waits until the events of a worker contain these steps in this order, perhaps with others between them.
func (s *eventStream) await(worker string, wanted ...string) {
	s.t.Helper()
	var steps []string
	require.Eventually(s.t, func() bool { steps = s.steps(worker); return holdsInOrder(steps, wanted) }, waitTimeout,
		50*time.Millisecond, "%s: missing some of %v in %v", worker, wanted, &steps)
}

// awaitReported waits until the transitions that a reader has got are all of the history of a pool's first worker, in
// order, and no others. Events are emitted at least once: a workflow task that Temporal repeats emits its own again.
func (env *testEnv) awaitReported(pool *tempool.Pool, reader *eventStream) {
	env.t.Helper()
	var recorded, reported []string
	require.Eventually(env.t, func() bool {
		history, err := pool.History(env.t.Context(), 0)
		if err != nil {
			return false
		}
		recorded = nil
		for _, transition := range history {
			if !transition.IsNote() {
				recorded = append(recorded, string(transition.From)+">"+string(transition.To))
			}
		}
		reported = slices.DeleteFunc(reader.steps(api.WorkerName(pool.Name(), 0)),
			func(step string) bool { return !strings.Contains(step, ">") })
		return holdsInOrder(reported, recorded) &&
			!slices.ContainsFunc(reported, func(step string) bool { return !slices.Contains(recorded, step) })
	}, waitTimeout, 50*time.Millisecond, "recorded %v, reported %v", &recorded, &reported)
}

// holdsInOrder reports whether steps hold the wanted ones in this order, perhaps with others between them.
func holdsInOrder(steps, wanted []string) bool {
	for _, step := range steps {
		if len(wanted) > 0 && step == wanted[0] {
			wanted = wanted[1:]
		}
	}
	return len(wanted) == 0
}

// A stream and a webhook have all that happens to a worker, up to the end of the agent.
func TestEventsReportWhatHappensToAWorker(t *testing.T) {
	env := newEnv(t)
	received := &eventStream{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var batch []api.Event
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
			t.Errorf("a batch: %v", err)
		}
		received.add(batch...)
	}))
	t.Cleanup(server.Close)
	a := env.startAgent("host-a", "--events-webhook", server.URL, "--events-webhook-types", "worker.*,process.*")
	pool := env.startPool(echoSpec("watched", 1))
	stream := env.followEvents("host-a")
	lease := env.checkout(pool, tempool.CheckoutOptions{Holder: "me"})
	require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
	stream.await("watched/0", api.EventLeaseGranted, api.EventLeaseReleased)
	killed := env.waitState(pool, 0, lifecycle.Ready).PID
	killProcess(t, killed)
	env.waitLater(pool, "the worker is ready again", 1)

	for _, reader := range []*eventStream{stream, received} {
		reader.await("watched/0", "created>starting", "starting>ready", "ready>busy", "busy>ready", "ready>failed",
			"starting>ready")
		reader.await("watched/0", api.EventProcessStarted, api.EventProcessEnded, api.EventProcessStarted)
		env.awaitReported(pool, reader)
	}

	// The cause of the crash is in the history and in the event of its end.
	require.False(t, processAlive(killed))
	history := env.history(pool, 0)
	at := slices.IndexFunc(history, func(t lifecycle.Transition) bool { return t.Event == lifecycle.Exited })
	require.GreaterOrEqual(t, at, 0, "%v", history)
	crash := history[at]
	require.Equal(t, lifecycle.Failed, crash.To)
	require.Contains(t, crash.Reason, "SIGKILL")
	require.Equal(t, map[string]string{"code": "0", "signal": "SIGKILL"}, crash.Metadata)
	stream.mu.Lock()
	ended := slices.IndexFunc(stream.events, func(e api.Event) bool { return e.Type == api.EventProcessEnded })
	var data api.ProcessEventData
	require.NoError(t, json.Unmarshal(stream.events[ended].Data, &data))
	stream.mu.Unlock()
	require.Equal(t, "SIGKILL", data.Signal)
	require.Equal(t, lifecycle.Failed, data.Outcome)
	require.Equal(t, lease.Incarnation, data.Incarnation)

	a.stop()                                                                  // while a stream is open
	received.await("watched/0", api.EventProcessEnded, api.EventProcessEnded) // the last one is posted on the way out
}
