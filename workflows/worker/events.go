package worker

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/display"
)

func requested(reason, by string, rest bool) request {
	return request{wanted: true, reason: display.Attributed(reason, by), stayDown: rest}
}

// takeEnding takes a request to stop or drain where nothing is in flight, so that both mean the same.
func (w *worker) takeEnding() (r request, rest bool) {
	r = w.events.stop
	if !r.wanted {
		r = w.events.drain
	}
	w.events.stop, w.events.drain = request{}, request{}
	return r, r.stayDown
}

func (w *worker) takeRestart() request {
	r := w.events.restart
	w.events.restart = request{}
	return r
}

// absorbRequests takes requests that arrive while the process is leaving already: they only change what follows.
func (w *worker) absorbRequests(stopToo bool) {
	if r := w.events.drain; r.wanted {
		w.events.drain = request{}
		w.restIfAsked(r.stayDown)
	}
	if r := w.events.stop; r.wanted && stopToo {
		w.events.stop = request{}
		w.restIfAsked(r.stayDown)
	}
	if r := w.takeRestart(); r.wanted {
		w.Cause = r.cause
		w.Intent, w.IntentReason = IntentReplace, r.reason // the latest word counts, also against an earlier wish to rest
	}
	if w.events.suspend.wanted || w.events.resume.wanted {
		w.events.suspend, w.events.resume, w.SuspendWanted = request{}, request{}, false
		w.refuse("suspend or resume: it is " + string(w.Machine.State))
	}
}

// facts are what callbacks have parked for settle to act on. Each is taken once.
type pendingEvents struct {
	capacity *completion[api.AwaitCapacityResult]
	start    *completion[api.StartResult]
	watch    *completion[api.WatchResult]
	probe    *completion[api.ProbeResult]
	drain    request
	drained  *completion[api.DrainResult]
	stop     request
	stopped  *completion[api.StopResult]
	reset    *completion[api.ResetResult]
	suspend  request
	resume   request
	restart  request

	successor *completion[api.StartResult]

	waitOver, checkpoint, leaseTimer, drainTimeout, uptime, retry bool
}

// any reports whether something waits to be acted on.
func (f pendingEvents) any() bool {
	return f.capacity != nil || f.start != nil || f.watch != nil || f.probe != nil || f.drained != nil || f.stopped != nil || f.reset != nil ||
		f.drain.wanted || f.stop.wanted || f.suspend.wanted || f.resume.wanted || f.restart.wanted ||
		f.successor != nil || f.waitOver || f.checkpoint || f.leaseTimer || f.drainTimeout || f.uptime || f.retry
}

// request is something an operator, a pool or an agent asked for.
type request struct {
	wanted   bool
	reason   string
	stayDown bool // the worker is to stay down afterwards
	// Of a restart: the word it is counted under, and whether the old process is to stop first.
	cause   api.Cause
	inPlace bool
}

func (r request) or(reason, by string) request {
	if r.wanted {
		return r
	}
	return request{wanted: true, reason: display.Attributed(reason, by)}
}

// completion is the end of an activity.
type completion[T any] struct {
	result T
	err    error
}

// take returns a parked fact and clears it.
func take[T any](p **T) *T {
	v := *p
	*p = nil
	return v
}
