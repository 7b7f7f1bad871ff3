package worker

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// A gateway holds leases for the calls of a pool. If another holder asks for the worker, the workflow recalls the
// lease: the gateway returns it at once if no call is in flight, else a little later, between two calls. Each recall
// writes about ten events, so one is under way at a time, and a refused one is remembered for longer each time.

const (
	// recallMemory is how long the first refused recall of a lease is remembered; each further one doubles it.
	recallMemory    = time.Second
	maxRecallMemory = 30 * time.Second
)

// RefusedRecall is the memory of a lease that its gateway did not return.
type RefusedRecall struct {
	LeaseID string    `json:"lease_id"`
	Times   int       `json:"times"`
	Until   time.Time `json:"until"` // no recall before
}

func isGateway(holder string) bool { return strings.HasPrefix(holder, api.GatewayHolderPrefix) }

// isGatewayLease reports whether a gateway holds the current lease.
func (l *leases) isGatewayLease() bool { return l.Lease != nil && isGateway(l.Lease.Holder) }

// mayRecall reports whether only a gateway's lease is in the way of the request, and the gateway may be asked for it
// now.
func (l *leases) mayRecall(r api.CheckoutRequest) bool {
	return l.Machine.State == lifecycle.Busy && l.isGatewayLease() && !isGateway(r.Holder) && !l.recalling &&
		!l.suspender.isPending() && !l.Now().Before(l.recallRefusedUntil())
}

// recallRefusedUntil is until when the gateway is not asked for the current lease again.
func (l *leases) recallRefusedUntil() time.Time {
	if l.RefusedRecall == nil || l.Lease == nil || l.RefusedRecall.LeaseID != l.Lease.ID {
		return time.Time{}
	}
	return l.RefusedRecall.Until
}

// recall asks the gateway to return its lease, and remembers a refusal.
func (l *leases) recall(ctx workflow.Context) {
	id := l.Lease.ID
	l.recalling = true
	var result api.RecallResult
	err := l.activities.recall(id).Get(ctx, &result)
	l.recalling = false
	switch {
	case err == nil && result.Returned && result.Checkin != nil:
		l.checkin(*result.Checkin)
	case l.Lease != nil && l.Lease.ID == id:
		if l.RefusedRecall == nil || l.RefusedRecall.LeaseID != id {
			l.RefusedRecall = &RefusedRecall{LeaseID: id}
		}
		l.RefusedRecall.Until = l.Now().Add(min(recallMemory<<min(l.RefusedRecall.Times, 10), maxRecallMemory))
		l.RefusedRecall.Times++
	}
}
