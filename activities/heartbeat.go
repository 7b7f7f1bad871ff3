package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

const (
	// heartbeatsPerTimeout is how many heartbeats Temporal must miss until it takes the agent of an activity for dead.
	heartbeatsPerTimeout = 3
	// leastHeartbeatInterval is the least time between two heartbeats.
	leastHeartbeatInterval = time.Second
)

// startHeartbeat sends heartbeats with these details until stop is called, as many as the activity's time-out needs. The first one is not sent at
// once: Temporal counts from the start of the activity, and most end before.
func startHeartbeat(ctx context.Context, details ...any) (stop func()) {
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(max(activity.GetInfo(ctx).HeartbeatTimeout/heartbeatsPerTimeout, leastHeartbeatInterval))
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
