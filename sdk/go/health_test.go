package sdk

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/wire"
)

func TestAPingFailsWithTheErrorOfAHealthFunction(t *testing.T) {
	var well atomic.Bool
	OnHealth(func(context.Context) error { return nil })
	OnHealth(func(context.Context) error {
		if !well.Load() {
			return errors.New("the GPU is gone")
		}
		return nil
	})
	host := serve(t, wire.Options{})
	var failure *wire.RemoteError
	require.ErrorAs(t, host.Ping(t.Context()), &failure)
	require.Equal(t, "the GPU is gone", failure.Message)
	well.Store(true)
	require.NoError(t, host.Ping(t.Context()))
}

func TestAHealthFunctionEndsWithTheWorker(t *testing.T) {
	running := make(chan struct{})
	OnHealth(func(ctx context.Context) error {
		close(running)
		<-ctx.Done()
		return ctx.Err()
	})
	host := serve(t, wire.Options{}) // its cleanup fails if the worker serves on
	ctx, cancel := context.WithCancel(t.Context())
	pinged := make(chan error, 1)
	go func() { pinged <- host.Ping(ctx) }()
	<-running
	cancel()
	require.ErrorIs(t, <-pinged, context.Canceled)
}

func TestAWorkerReportsAtOnceThatItIsNotWell(t *testing.T) {
	require.ErrorContains(t, Unhealthy("no"), "after Run")
	Method("report", func(_ context.Context, reason string) (any, error) { return nil, Unhealthy(reason) })
	reports := make(chan string, 1)
	host := serve(t, wire.Options{OnUnhealthy: func(reason string) { reports <- reason }})
	for _, reason := range []string{"the GPU is gone", strings.Repeat("x", 5000)} {
		answered(t, host, wire.Request{Method: "report", Payload: []byte(`"` + reason + `"`)})
		select {
		case got := <-reports:
			require.Equal(t, reason[:min(len(reason), wire.MaxReason)], got)
		case <-time.After(time.Minute):
			require.Fail(t, "no report")
		}
	}
}
