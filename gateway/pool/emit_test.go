package pool

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
)

// failures are the events of calls that failed, oldest first.
func (e *env) failures() (all []api.CallEvent) {
	e.t.Helper()
	batch, _, _ := e.dispatcher.config.Events.FromOldest(events.Filter{Types: []string{api.EventCallFailed}}).Read()
	for _, entry := range batch {
		var event struct{ Data api.CallEvent }
		require.NoError(e.t, json.Unmarshal(entry.JSON, &event))
		all = append(all, event.Data)
	}
	return all
}

func TestTheEventOfAFailedCallSaysWhetherAWorkerMayHaveSeenIt(t *testing.T) {
	e := newEnv(t)
	e.dispatcher.config.Events = events.New("here")
	e.start(1)
	e.fail("fail", false)
	_, err := e.dispatcher.CallPool(t.Context(), "p",
		Request{Method: "echo", Headers: map[string]string{"": "no header has this name"}})
	require.Error(t, err)
	require.False(t, started(err))
	failures := e.failures()
	require.Len(t, failures, 2)
	require.True(t, failures[0].Started)
	require.False(t, failures[1].Started, "it was not sent")
	require.EqualValues(t, 1, failures[1].Incarnation)
}
