package pool

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/internal/tracecontext"
	"github.com/tempool/tempool/process/wire"
)

// unsampling is a tracecontext.Sampler that samples no trace.
type unsampling struct{ trace.Tracer }

func (unsampling) Sample(ctx context.Context, _ trace.SpanContext) (context.Context, trace.SpanContext) {
	return ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
}

func TestACallThatIsNotSampledNamesItsTraceWithoutAnAllocation(t *testing.T) {
	d := &Dispatcher{config: Config{Tracer: unsampling{noop.NewTracerProvider().Tracer("")}}}
	target, request := AnyWorker("p", "", DefaultPriority), Request{Method: "m"}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		request.Trace = wire.Trace{}
		if _, traced := d.trace(context.Background(), &target, &request); traced != nil {
			panic("it is traced")
		}
	}))
	require.Equal(t, "00-01000000000000000000000000000000-0200000000000000-00", request.Trace.Parent())
}

func TestACallIsBelowTheSpanOfItsContext(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	d := &Dispatcher{config: Config{Tracer: unsampling{noop.NewTracerProvider().Tracer("")}}}
	for flag, sampled := range map[string]bool{"0": false, "1": true} {
		ctx := trace.ContextWithSpanContext(t.Context(), tracecontext.Parse(parent+flag, "a=1"))
		target, request := AnyWorker("p", "", DefaultPriority), Request{Method: "m"}
		_, traced := d.trace(ctx, &target, &request)
		require.Equal(t, sampled, traced != nil)
		if !sampled {
			require.Equal(t, []string{parent + flag, "a=1"}, []string{request.Trace.Parent(), request.Trace.State})
		}
	}
	decided := Request{Method: "m", Trace: wire.Trace{ID: [16]byte{1}, Span: [8]byte{2}}}
	target := AnyWorker("p", "", DefaultPriority)
	_, traced := d.trace(trace.ContextWithSpanContext(t.Context(), tracecontext.Parse(parent+"1", "")), &target, &decided)
	require.Nil(t, traced, "the caller has decided")
}

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
