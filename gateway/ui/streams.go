package ui

import "sync"

const (
	// maxStreams bounds the streams of events: each follows every agent. maxStreamsEach bounds those of one principal.
	maxStreams, maxStreamsEach = 64, 8
	// streamRetrySeconds is after how long a browser whose stream was refused asks again; until then its pages reload.
	streamRetrySeconds = "30"
)

// streams counts the streams of events that are open. The zero value is ready.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by the principal's name
}

// enter reports whether a principal may open one more stream. If so, it must leave at its end.
func (s *streams) enter(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.of[name] >= maxStreamsEach {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[name]++
	return true
}

func (s *streams) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[name]--; s.of[name] == 0 {
		delete(s.of, name)
	}
}
