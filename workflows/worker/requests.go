package worker

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/display"
)

// requests are what operators, the pool or an agent have requested and reconcile has not carried out.
type requests struct {
	drain, stop, resume, restart request
}

// PendingRequest is a request in the carried state.
type PendingRequest struct {
	Kind    string    `json:"kind"` // the signal
	Reason  string    `json:"reason"`
	Rest    bool      `json:"rest,omitempty"`
	Cause   api.Cause `json:"cause,omitempty"`
	InPlace bool      `json:"in_place,omitempty"`
}

// named are the requests by the signals that make them.
func (r *requests) named() map[string]*request {
	return map[string]*request{
		api.SignalDrain: &r.drain, api.SignalStop: &r.stop, api.SignalResume: &r.resume, api.SignalRestart: &r.restart,
	}
}

// pending are the requests for the carried state.
func (r *requests) pending() []PendingRequest {
	var list []PendingRequest
	named := r.named()
	for _, kind := range workflow.DeterministicKeys(named) {
		if q := named[kind]; q.wanted {
			list = append(list, PendingRequest{kind, q.reason, q.rest, q.cause, q.inPlace})
		}
	}
	return list
}

// restore takes the requests from the carried state.
func (r *requests) restore(list []PendingRequest) {
	named := r.named()
	for _, p := range list {
		if q := named[p.Kind]; q != nil {
			*q = request{wanted: true, reason: p.Reason, rest: p.Rest, cause: p.Cause, inPlace: p.InPlace}
		}
	}
}

type request struct {
	wanted bool
	reason string
	rest   bool // the worker rests afterwards
	// Of a restart: the cause to count, and whether the old process stops before the next one starts.
	cause   api.Cause
	inPlace bool
}

func requested(reason, by string, rest bool) request {
	return request{wanted: true, reason: display.Attributed(reason, by), rest: rest}
}

// take returns the request and clears it.
func (r *request) take() request {
	taken := *r
	*r = request{}
	return taken
}

// takeEnd takes a stop or else a drain, in a state in which both mean the same: no call is in flight.
func (r *requests) takeEnd() request {
	stop, drain := r.stop.take(), r.drain.take()
	if stop.wanted {
		return stop
	}
	return drain
}
