package lifecycle

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// RingSize is how many transitions a Machine remembers; older ones fall out.
const RingSize = 100

// Machine is the lifecycle state of one worker. It is a value: Next and WithHealth return a new one and do not change
// the one they were given, ring included. Encoding it as JSON and back yields the same value.
type Machine struct {
	State State `json:"state"`
	// Since is when State was entered.
	Since time.Time `json:"since"`
	// StartedAt is when this incarnation became ready; zero until it did.
	StartedAt time.Time `json:"started_at,omitzero"`
	// UpdatedAt is when state or health last changed.
	UpdatedAt time.Time `json:"updated_at"`
	Health    Health    `json:"health"`
	// Incarnation numbers the processes of this worker from 1; 0 before the first. A number is never used again.
	Incarnation int64 `json:"incarnation"`
	// Ring holds the newest RingSize transitions, oldest first.
	Ring []Transition `json:"ring,omitempty"`
}

// Transition is the record of one step, or of a decision that was none (Note).
type Transition struct {
	From   State     `json:"from"`
	To     State     `json:"to"`
	Event  EventKind `json:"event"`
	Reason string    `json:"reason"`
	// DurationMS is how long the worker had been in From, in whole milliseconds, never negative.
	DurationMS int64     `json:"duration_ms"`
	Timestamp  time.Time `json:"timestamp"`
	// Incarnation is the one the worker was in after the step.
	Incarnation int64             `json:"incarnation"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// ErrExitMissing is Next's error for an Exited event without Exit.
var ErrExitMissing = errors.New("an exited event must say how the process ended: set Event.Exit")

// New is the machine of a worker whose workflow has just begun: Created, before its first incarnation.
func New(now time.Time) Machine {
	now = plain(now)
	return Machine{State: Created, Since: now, UpdatedAt: now, Health: Unknown}
}

// Next carries out one event at the time now and returns the machine after it. An event that the state does not accept
// is an error that names state and event, an Exited event without its facts is ErrExitMissing; in both cases Next
// returns m unchanged.
//
// Start and Hold begin the next incarnation: its number goes up by one, health is Unknown and it has not started.
// Release does not count again. Started sets StartedAt and Healthy. ProbeFailed and Unhealthy make the health
// Unhealthy, ProbePassed makes it Healthy, and the end of an incarnation makes it Unknown, because no process is left
// to probe.
func Next(m Machine, e Event, now time.Time) (Machine, error) {
	to, ok := Allowed(m.State, e.Kind)
	if !ok {
		return m, fmt.Errorf("illegal transition: a worker in state %q does not accept event %q", m.State, e.Kind)
	}
	reason, metadata := e.Reason, copied(e.Metadata)
	if e.Kind == Exited {
		if e.Exit == nil {
			return m, ErrExitMissing
		}
		to = Outcome(*e.Exit, m.State == Draining || m.State == Stopping) // to which each request to end it leads
		if reason == "" {
			reason = e.Exit.String()
		}
		if metadata == nil {
			metadata = e.Exit.Metadata()
		}
	}

	now = plain(now)
	next := m
	next.State, next.Since, next.UpdatedAt = to, now, now
	switch e.Kind {
	case Start, Hold:
		next.Incarnation++
		next.Health, next.StartedAt = Unknown, time.Time{}
	case StartSucceeded:
		next.Health, next.StartedAt = Healthy, now
	case ProbePassed:
		next.Health = Healthy
	case ProbeFailed, Unhealthy:
		next.Health = Unhealthy
	}
	if to.Outcome() {
		next.Health = Unknown
	}
	next.Ring = m.pushed(Transition{To: to, Event: e.Kind, Reason: reason, Timestamp: now,
		Incarnation: next.Incarnation, Metadata: metadata})
	return next, nil
}

// WithHealth is the machine with health h. UpdatedAt moves only if that is a change; the state never does.
func WithHealth(m Machine, h Health, now time.Time) Machine {
	if m.Health != h {
		m.Health, m.UpdatedAt = h, plain(now)
	}
	return m
}

// Recorded is the machine with an entry in its ring for what was decided without leaving the state: From and To are
// that state. It changes nothing else, and keeps the duration of the state counting.
func Recorded(m Machine, kind NoteKind, reason string, now time.Time) Machine {
	m.Ring = m.pushed(Transition{To: m.State, Event: EventKind(kind), Reason: reason, Timestamp: plain(now),
		Incarnation: m.Incarnation})
	return m
}

// IsNote reports whether the record is of a decision that changed no state.
func (t Transition) IsNote() bool { return t.From == t.To }

// pushed is a new ring: the newest of the old one, then t, a step from the state of m.
func (m Machine) pushed(t Transition) []Transition {
	t.From, t.DurationMS = m.State, max(0, t.Timestamp.Sub(m.Since).Milliseconds())
	kept := m.Ring[max(0, len(m.Ring)-(RingSize-1)):]
	return append(append(make([]Transition, 0, len(kept)+1), kept...), t)
}

// copied is a map of the record's own; an empty one is nil, which is what JSON makes of it.
func copied(metadata map[string]string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	return maps.Clone(metadata)
}

// plain is a time as it is after JSON: in UTC, without a monotonic reading.
func plain(t time.Time) time.Time { return t.Round(0).UTC() }
