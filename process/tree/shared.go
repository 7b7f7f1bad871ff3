package tree

import "sync"

// sharedReads reads the process table once for all callers that ask while another read is under way: a read takes
// longer the more processes there are, and the more processes end at once, the more ask.
type sharedReads struct {
	read func(visit func(*Entry)) (*Table, error)

	reading sync.Mutex // held during a read
	mu      sync.Mutex // guards next and its visits
	next    *tableRead // has not begun; nil while nobody waits for it
}

// tableRead is one read, and who waits for it.
type tableRead struct {
	visits []func(*Entry) // nil for one that visits nothing
	done   bool           // guarded by reading, like its result
	table  *Table
	err    error
}

// after returns a table whose read began after the call. visit is called as by read, perhaps on another goroutine.
func (s *sharedReads) after(visit func(*Entry)) (*Table, error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = &tableRead{}
	}
	r := s.next
	r.visits = append(r.visits, visit)
	s.mu.Unlock()

	s.reading.Lock()
	defer s.reading.Unlock()
	if !r.done { // then r is still the next one
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
		r.table, r.err = s.read(r.visit)
		r.done = true
	}
	return r.table, r.err
}

func (r *tableRead) visit(e *Entry) {
	for _, visit := range r.visits {
		if visit != nil {
			visit(e)
		}
	}
}
