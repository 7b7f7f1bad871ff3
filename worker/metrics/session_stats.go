package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// SessionStats counts what happens to sessions at this agent. NewSessionStats makes it.
type SessionStats struct {
	duration                  *prometheus.HistogramVec // by store and operation
	failures, created, remove *prometheus.CounterVec
	moves                     *prometheus.CounterVec // by result
}

// NewSessionStats returns counters at 0.
func NewSessionStats() *SessionStats {
	s := &SessionStats{
		duration: sessionSeconds.histogramVec(0.0001, 0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1, 5),
		failures: sessionFailures.counterVec(), created: sessionsCreated.counterVec(), remove: sessionsRemoved.counterVec(),
		moves: sessionMoves.counterVec(),
	}
	for _, result := range moveResults {
		s.moves.WithLabelValues(result)
	}
	return s
}

// moveResults say whether a session was bound as its move wanted.
var moveResults = map[bool]string{true: "moved", false: "superseded"}

// Opened starts the counts of a store at 0.
func (s *SessionStats) Opened(store string) {
	s.created.WithLabelValues(store)
	for _, why := range []sessions.Removal{sessions.Evicted, sessions.Expired} {
		s.remove.WithLabelValues(store, string(why))
	}
	for _, code := range []api.Code{api.CodeStoreFull, api.CodeStoreUnavailable} {
		s.failures.WithLabelValues(store, string(code))
	}
}

// Used counts an operation on a store. Of its errors only those count that are the store's.
func (s *SessionStats) Used(store, operation string, took time.Duration, err error) {
	s.duration.WithLabelValues(store, operation).Observe(took.Seconds())
	if code := api.CodeOf(err); code == api.CodeStoreFull || code == api.CodeStoreUnavailable {
		s.failures.WithLabelValues(store, string(code)).Inc()
	}
}

// Created counts a new session.
func (s *SessionStats) Created(store string) { s.created.WithLabelValues(store).Inc() }

// Removed counts sessions that a store has expired or evicted.
func (s *SessionStats) Removed(store string, why sessions.Removal, n int) {
	s.remove.WithLabelValues(store, string(why)).Add(float64(n))
}

// Moved counts a session that was to be bound to another worker, and whether it was.
func (s *SessionStats) Moved(done bool) {
	s.moves.WithLabelValues(moveResults[done]).Inc()
}

func (s *SessionStats) vectors() []prometheus.Collector {
	return []prometheus.Collector{s.duration, s.failures, s.created, s.remove, s.moves}
}
