package worker

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/worker/metrics"
)

// countingObserver counts what the agent reports to it.
type countingObserver struct {
	activities.Observer
	probes, failures, exceeded, samples int
}

func (o *countingObserver) Probed(api.Process, time.Duration, error) { o.probes++ }
func (o *countingObserver) Sampled(api.Process, *api.Sample, int64)  { o.samples++ }
func (o *countingObserver) StartFailed(api.Process, error)           { o.failures++ }
func (o *countingObserver) Exceeded(api.Process, limits.Violation)   { o.exceeded++ }

func TestAnAgentEmitsWhatItsActivitiesSee(t *testing.T) {
	a := &Agent{config: Config{HostID: "web-1"}, events: events.New("here"), transitions: metrics.NewTransitions()}
	counting := &countingObserver{}
	o := &emittingObserver{Observer: counting, agent: a}
	first, second := api.Process{Worker: "p/0", Incarnation: 1}, api.Process{Worker: "p/0", Incarnation: 2}
	sick := errors.New("no answer within 5s")
	for _, probe := range []struct {
		of  api.Process
		err error
	}{{first, nil}, {first, sick}, {first, sick}, {first, nil}, {first, nil}, {first, sick}, {second, nil}} {
		o.Probed(probe.of, time.Millisecond, probe.err)
	}
	o.StartFailed(second, errors.New("exited with code 3"))
	o.Exceeded(second, limits.Violation{Limit: "memory", Reason: "it uses 65 MB of 64 MB", At: time.Now()})
	sample := &api.Sample{At: time.Now(), MemoryBytes: 64e6}
	o.Sampled(second, sample, 7) // nobody reads it
	samples := a.events.FromOldest(events.Filter{Types: []string{api.EventWorkerSampled}})
	require.True(t, samples.Wait(t.Context()))
	o.Sampled(second, sample, 8)
	require.Equal(t, countingObserver{probes: 7, failures: 1, exceeded: 1, samples: 2}, *counting)
	read, _, _ := samples.Read()
	require.Len(t, read, 1)
	require.Contains(t, string(read[0].JSON), `"memory_bytes":64000000`)
	require.Contains(t, string(read[0].JSON), `"requests":8`)

	var emitted []string
	batch, _, _ := a.events.FromOldest(events.Filter{}).Read()
	for _, entry := range batch {
		var event api.Event
		require.NoError(t, json.Unmarshal(entry.JSON, &event))
		require.Equal(t, "/pools/p/workers/0", event.Source)
		emitted = append(emitted, event.Type+" "+string(event.Data))
	}
	failed := `worker.probed {"host":"web-1","incarnation":1,"healthy":false,"reason":"no answer within 5s"}`
	require.Equal(t, []string{
		failed, failed, `worker.probed {"host":"web-1","incarnation":1,"healthy":true}`, failed,
		`process.start_failed {"host":"web-1","incarnation":2,"reason":"exited with code 3"}`,
		`limit.exceeded {"host":"web-1","incarnation":2,"limit":"memory","reason":"it uses 65 MB of 64 MB"}`,
	}, emitted)
}
