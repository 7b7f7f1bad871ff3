package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

// heartbeatInterval is the rhythm of heartbeats; the workflow takes three missed ones for silence.
const heartbeatInterval = 4 * time.Second

// beat heartbeats until the returned function is called.
func startHeartbeat(ctx context.Context, details ...any) (stop func()) {
	activity.RecordHeartbeat(ctx, details...)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(heartbeatInterval / 2)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, details...)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
