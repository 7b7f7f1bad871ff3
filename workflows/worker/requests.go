package worker

import (
	"cmp"
	"slices"

	"github.com/tempool/tempool/api"
)

// PendingRequest is what an operator, the pool or an agent has requested and reconcile has not carried out.
type PendingRequest struct {
	Kind   string `json:"kind"` // the signal
	Reason string `json:"reason"`
	// Of a restart: the cause to count, and whether the old process stops before the next one starts.
	Cause   api.Cause `json:"cause,omitempty"`
	InPlace bool      `json:"in_place,omitempty"`
}

// addRequest adds a request, which replaces an earlier one of its kind.
func (w *worker) addRequest(r PendingRequest) {
	w.takeRequest(r.Kind)
	w.Requests = append(w.Requests, r)
}

func (w *worker) isRequested(kind string) bool {
	return slices.ContainsFunc(w.Requests, func(r PendingRequest) bool { return r.Kind == kind })
}

// takeRequest returns the request of a kind and clears it; nil if there is none.
func (w *worker) takeRequest(kind string) *PendingRequest {
	i := slices.IndexFunc(w.Requests, func(r PendingRequest) bool { return r.Kind == kind })
	if i < 0 {
		return nil
	}
	taken := w.Requests[i]
	w.Requests = slices.Delete(w.Requests, i, i+1)
	return &taken
}

// takeEnd takes a stop or else a drain, in a state in which both mean the same: no call is in flight.
func (w *worker) takeEnd() *PendingRequest {
	return cmp.Or(w.takeRequest(api.SignalStop), w.takeRequest(api.SignalDrain))
}
