package metrics

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/limits"
)

func TestWhatTheActivitiesSeeIsCountedAndEmitted(t *testing.T) {
	log := events.New("here")
	o := newWorkerStats("web-1", log, noProcess)
	began := time.Now()
	o.Started(incarnation(1), process.Info{PID: 7, StartedAt: began, ReadyAt: began.Add(time.Second)}, 2*time.Second)
	sick := errors.New("no answer within 5s")
	for _, probe := range []struct {
		of  api.Process
		err error
	}{
		{incarnation(1), nil}, {incarnation(1), sick}, {incarnation(1), sick}, {incarnation(1), nil},
		{incarnation(1), nil}, {incarnation(1), sick}, {incarnation(2), nil},
	} {
		o.Probed(probe.of, time.Millisecond, probe.err)
	}
	o.StartFailed(incarnation(2), errors.New("exited with code 3"))
	o.Exceeded(incarnation(2), limits.Violation{Limit: "memory", Reason: "it uses 65 MB of 64 MB", At: time.Now()})
	require.EqualValues(t, 3, counterValue(t, o.probeFailures.WithLabelValues("p")))
	require.EqualValues(t, 1, counterValue(t, o.startFailures.WithLabelValues("p")))
	sample := &api.Sample{At: time.Now(), MemoryBytes: 64e6}
	o.Sampled(incarnation(2), sample, 7) // nobody reads it
	samples := log.FromOldest(events.Filter{Types: []string{api.EventWorkerSampled}})
	require.True(t, samples.Wait(t.Context()))
	o.Sampled(incarnation(2), sample, 8)
	read, _, _ := samples.Read()
	require.Len(t, read, 1)
	require.Contains(t, string(read[0].JSON), `"memory_bytes":64000000`)
	require.Contains(t, string(read[0].JSON), `"requests":8`)

	var emitted []string
	batch, _, _ := log.FromOldest(events.Filter{}).Read()
	for _, entry := range batch {
		var event api.Event
		require.NoError(t, json.Unmarshal(entry.JSON, &event))
		require.Equal(t, "/pools/p/workers/0", event.Source)
		emitted = append(emitted, event.Type+" "+string(event.Data))
	}
	failed := `worker.probed {"host":"web-1","incarnation":1,"healthy":false,"reason":"no answer within 5s"}`
	require.Equal(t, []string{
		`process.started {"host":"web-1","incarnation":1,"pid":7,"took_ms":1000}`,
		failed, failed, `worker.probed {"host":"web-1","incarnation":1,"healthy":true}`, failed,
		`process.start_failed {"host":"web-1","incarnation":2,"reason":"exited with code 3"}`,
		`limit.exceeded {"host":"web-1","incarnation":2,"limit":"memory","reason":"it uses 65 MB of 64 MB"}`,
	}, emitted)
}
