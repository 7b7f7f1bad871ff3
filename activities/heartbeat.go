package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

// heartbeatInterval is the time between two heartbeats; the workflow treats three missed ones as a timeout.
const heartbeatInterval = 4 * time.Second

// startHeartbeat sends heartbeats with these details until stop is called.
func startHeartbeat(ctx context.Context, details ...any) (stop func()) {
	activity.RecordHeartbeat(ctx, details...)
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(heartbeatInterval / 2)
		defer ticker.Stop()
		for {
			select {
			case <-stopping:
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, details...)
			}
		}
	}()
	return func() {
		close(stopping)
		<-done
	}
}
