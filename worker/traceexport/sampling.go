package traceexport

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampling is what OTEL_TRACES_SAMPLER asks for.
type sampling struct {
	root        sdktrace.Sampler // decides by the id of the trace
	parentBased bool             // a span that has a parent is sampled if its parent is; root decides about the others
}

// sampler is s for the SDK.
func (s sampling) sampler() sdktrace.Sampler {
	if s.parentBased {
		return sdktrace.ParentBased(s.root)
	}
	return s.root
}

// askedSampling reads the environment. A value that it does not know is logged, and is as if it were unset.
func askedSampling(logger *slog.Logger) sampling {
	name := strings.ToLower(strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER")))
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	switch {
	case kind == "always_on":
		return sampling{sdktrace.AlwaysSample(), parentBased}
	case kind == "always_off":
		return sampling{sdktrace.NeverSample(), parentBased}
	case kind == "traceidratio":
		return sampling{sdktrace.TraceIDRatioBased(askedRatio(logger)), parentBased}
	case name != "":
		logger.Warn("OTEL_TRACES_SAMPLER is not used", "value", name, "allowed",
			"always_on, always_off, traceidratio, and each after parentbased_", "used", "parentbased_always_on")
	}
	return sampling{sdktrace.AlwaysSample(), true}
}

// askedRatio is the share of traces that OTEL_TRACES_SAMPLER_ARG asks for.
func askedRatio(logger *slog.Logger) float64 {
	text := strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if text == "" {
		return 1
	}
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) { // which NaN is not
		logger.Warn("OTEL_TRACES_SAMPLER_ARG is not used", "value", text, "allowed", "0 to 1", "used", 1)
		return 1
	}
	return ratio
}

// tracer is the SDK's, and a tracecontext.Sampler.
type tracer struct {
	trace.Tracer
	sampling sampling
}

func (t *tracer) Sample(ctx context.Context, parent trace.SpanContext) (context.Context, trace.SpanContext) {
	id := parent.TraceID()
	switch {
	case !parent.IsValid():
		id = newTraceID()
	case t.sampling.parentBased && parent.IsSampled():
		return ctx, trace.SpanContext{}
	case t.sampling.parentBased: // passed on as it came: no span is between it and those below
		return ctx, parent
	}
	parameters := sdktrace.SamplingParameters{ParentContext: context.Background(), TraceID: id}
	if t.sampling.root.ShouldSample(parameters).Decision == sdktrace.Drop {
		return ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: id, SpanID: newSpanID(), TraceFlags: parent.TraceFlags() &^ trace.FlagsSampled,
			TraceState: parent.TraceState(),
		})
	}
	if !parent.IsValid() {
		ctx = context.WithValue(ctx, sampledKey{}, id)
	}
	return ctx, trace.SpanContext{}
}

// sampledKey is the context key of the id of a trace that Sample has decided to sample. Its first span gets the id, so
// that Start decides alike.
type sampledKey struct{}

// ids makes the ids of traces and spans, as the SDK would, except for traces that have one already.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, chosen := ctx.Value(sampledKey{}).(trace.TraceID)
	if !chosen {
		id = newTraceID()
	}
	return id, newSpanID()
}

func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
