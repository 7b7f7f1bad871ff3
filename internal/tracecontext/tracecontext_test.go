package tracecontext

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		parent, state string
		valid         bool
		kept          string
	}{
		"a span":                     {parent: parent, valid: true},
		"a span with a state":        {parent: parent, state: "a=1,b=2", valid: true, kept: "a=1,b=2"},
		"a later version":            {parent: "01" + parent[2:] + "-more", valid: true},
		"a state that is too long":   {parent: parent, state: "a=" + strings.Repeat("x", MaxState), valid: true},
		"nothing":                    {},
		"a state alone":              {state: "a=1"},
		"text":                       {parent: "00-1-2-3"},
		"a later version, too long":  {parent: "01" + parent[2:] + "-" + strings.Repeat("x", 1<<20)},
		"bytes that are not in text": {parent: parent[:54] + "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			span := Parse(c.parent, c.state)
			require.Equal(t, c.valid, span.IsValid())
			require.Equal(t, c.kept, span.TraceState().String())
			require.Equal(t, c.valid, span.IsRemote())
		})
	}
}

func TestTwoParentsInHTTPAreNone(t *testing.T) {
	require.True(t, FromHTTP(http.Header{"Traceparent": {parent}}).IsValid())
	require.Equal(t, "a=1,b=2", FromHTTP(http.Header{"Traceparent": {parent},
		"Tracestate": {"a=1", "b=2"}}).TraceState().String())
	require.False(t, FromHTTP(http.Header{"Traceparent": {parent, parent}}).IsValid())
}

func TestToHTTPKeepsWhatTheCallerSet(t *testing.T) {
	ctx := trace.ContextWithSpanContext(context.Background(), Parse(parent, "a=1"))
	h := http.Header{}
	ToHTTP(ctx, h)
	require.Equal(t, http.Header{"Traceparent": {parent}, "Tracestate": {"a=1"}}, h)
	own := http.Header{"Traceparent": {"own"}}
	ToHTTP(ctx, own)
	require.Equal(t, http.Header{"Traceparent": {"own"}}, own)
	none := http.Header{}
	ToHTTP(context.Background(), none)
	require.Empty(t, none)
}

func TestALoggerNamesTheTraceOfASampledRequestOnly(t *testing.T) {
	plain := slog.New(slog.DiscardHandler)
	require.Same(t, plain, Logger(t.Context(), plain))
	unsampled := trace.ContextWithRemoteSpanContext(t.Context(), Parse(parent[:len(parent)-1]+"0", ""))
	require.Same(t, plain, Logger(unsampled, plain))
	require.Empty(t, ID(unsampled))
	sampled := trace.ContextWithRemoteSpanContext(t.Context(), Parse(parent, ""))
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", ID(sampled))
	var logged bytes.Buffer
	Logger(sampled, slog.New(slog.NewTextHandler(&logged, nil))).Info("refused")
	require.Contains(t, logged.String(), "msg=refused trace_id=0af7651916cd43dd8448eb211c80319c")
}
