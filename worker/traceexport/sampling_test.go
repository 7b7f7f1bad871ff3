package traceexport

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool/internal/tracecontext"
)

const (
	sampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	evenParent      = "00-0af7651916cd43ddffffffffffffffff-b7ad6b7169203331-01" // whose id no ratio below 1 samples
)

// samplerOf is the tracer of an agent with these variables. Nothing that it makes is sent.
func samplerOf(t *testing.T, name, argument string) (sampler tracecontext.Sampler, says string) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_TRACES_SAMPLER", name)
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", argument)
	logger, text := logged()
	provider := FromEnvironment(t.Context(), "h1", "i1", logger)
	t.Cleanup(func() { provider.Shutdown(context.Background()) })
	return provider.Tracer().(tracecontext.Sampler), text.String()
}

// TestTheDecisionBeforeASpanIsTheSpans compares what Sample says with what Start then makes, for each sampler and
// parent.
func TestTheDecisionBeforeASpanIsTheSpans(t *testing.T) {
	for sampler, c := range map[string]struct {
		argument                            string
		root, belowSampled, belowNotSampled bool
		says                                string
	}{
		"":                          {root: true, belowSampled: true},
		"parentbased_always_on":     {root: true, belowSampled: true},
		"parentbased_always_off":    {belowSampled: true},
		"parentbased_traceidratio":  {argument: "0", belowSampled: true},
		" ParentBased_TraceIDRatio": {argument: "1", root: true, belowSampled: true},
		"always_on":                 {root: true, belowSampled: true, belowNotSampled: true},
		"always_off":                {},
		"traceidratio": {argument: "2", root: true, belowSampled: true, belowNotSampled: true,
			says: "OTEL_TRACES_SAMPLER_ARG is not used"},
		"TraceIDRatio": {argument: "NaN", root: true, belowSampled: true, belowNotSampled: true,
			says: "OTEL_TRACES_SAMPLER_ARG is not used"},
		"parentbased_":  {root: true, belowSampled: true, says: "OTEL_TRACES_SAMPLER is not used"},
		"jaeger_remote": {root: true, belowSampled: true, says: "OTEL_TRACES_SAMPLER is not used"},
	} {
		t.Run(sampler+c.argument, func(t *testing.T) {
			tracer, text := samplerOf(t, sampler, c.argument)
			require.Contains(t, text, c.says)
			for parent, want := range map[string]bool{"": c.root, sampledParent: c.belowSampled,
				unsampledParent: c.belowNotSampled} {
				requireDecision(t, tracer, parent, want)
			}
		})
	}
}

func requireDecision(t *testing.T, tracer tracecontext.Sampler, parent string, want bool) {
	t.Helper()
	client := tracecontext.Parse(parent, "a=1")
	ctx, unsampled := tracer.Sample(trace.ContextWithRemoteSpanContext(t.Context(), client), client)
	require.Equal(t, want, !unsampled.IsValid(), "below %q", parent)
	require.False(t, unsampled.IsSampled())
	if parent == "" {
		ctx, unsampled = tracer.Sample(t.Context(), client)
	}
	_, span := tracer.Start(ctx, "one")
	require.Equal(t, want, span.IsRecording(), "below %q", parent)
	require.Equal(t, want, span.SpanContext().IsSampled())
	if client.IsValid() {
		require.Equal(t, client.TraceID(), span.SpanContext().TraceID())
		if !want {
			require.Equal(t, client.TraceID(), unsampled.TraceID())
			require.Equal(t, "a=1", unsampled.TraceState().String())
		}
	}
}

func TestAShareOfTheTracesIsSampled(t *testing.T) {
	tracer, _ := samplerOf(t, "parentbased_traceidratio", "0.25")
	const all = 4000
	sampled := 0
	for range all {
		ctx, unsampled := tracer.Sample(t.Context(), trace.SpanContext{})
		if unsampled.IsValid() {
			continue
		}
		sampled++
		_, span := tracer.Start(ctx, "one")
		require.True(t, span.SpanContext().IsSampled(), "a trace is drawn once")
	}
	require.InDelta(t, all/4, sampled, all/10) // far beyond chance
}

func TestARatioThatIsNotParentBasedTakesASampledTraceOut(t *testing.T) {
	tracer, _ := samplerOf(t, "traceidratio", "0.5")
	client := tracecontext.Parse(evenParent, "")
	_, unsampled := tracer.Sample(t.Context(), client)
	require.Equal(t, client.TraceID(), unsampled.TraceID())
	require.False(t, unsampled.IsSampled(), "those below are not sampled either")
	require.NotEqual(t, client.SpanID(), unsampled.SpanID(), "W3C Trace Context: who changes the flags changes the id")
}

func TestATraceThatIsNotSampledAllocatesNothing(t *testing.T) {
	tracer, _ := samplerOf(t, "parentbased_traceidratio", "0")
	client := tracecontext.Parse(unsampledParent, "")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		tracer.Sample(context.Background(), trace.SpanContext{})
		tracer.Sample(context.Background(), client)
	}))
}
