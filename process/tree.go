package process

import (
	"os"
	"sync"
)

// treeKey is what is needed to tell the processes of one incarnation from all others.
type treeKey struct {
	// Root leads the session and process group. Zero until the process was spawned.
	Root   identity `json:"root"`
	Cookie string   `json:"cookie"`
	// pinned means that Root has not been waited for, so its PID, also as the number of a session and group, cannot have been reused.
	pinned bool
	// known are members seen before, which stay members whatever they do to their environment, session and parent.
	known *memberSet
}

// memberSet is safe for concurrent use. A nil set is empty and stays so.
type memberSet struct {
	mu  sync.Mutex
	ids map[identity]struct{}
}

func (s *memberSet) list() []identity {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]identity, 0, len(s.ids))
	for id := range s.ids {
		ids = append(ids, id)
	}
	return ids
}

func (s *memberSet) has(id identity) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.ids[id]
	return found
}

// update makes the set the given members and forgets what the table no longer holds. Zombies stay: they are still to be reaped.
func (s *memberSet) update(t *table, members []*row) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.ids {
		if r := t.rows[id.PID]; r == nil || r.Start != id.Start {
			delete(s.ids, id)
		}
	}
	if s.ids == nil {
		s.ids = make(map[identity]struct{}, len(members))
	}
	for _, m := range members {
		s.ids[m.identity] = struct{}{}
	}
}

// members returns the living processes of k's tree, parents before their children, and remembers them as known. This process
// itself is never among them.
func (t *table) members(k treeKey) []*row {
	w := walk{t: t, self: os.Getpid(), seen: make(map[int]bool), sessions: make(map[int]bool)}
	if own := t.rows[w.self]; own != nil {
		w.sessions[own.sid] = true // a member that somehow sits in our own session must not make all of it members
	}
	if root := t.rows[k.Root.PID]; root != nil && root.Start == k.Root.Start {
		w.add(root)
	}
	if k.sessionTrusted(t) {
		w.addSession(k.Root.PID)
	}
	if k.Cookie != "" {
		for _, r := range t.bearers[k.Cookie] {
			w.add(r)
		}
	}
	for _, id := range k.known.list() {
		if r := t.rows[id.PID]; r != nil && r.Start == id.Start {
			w.add(r)
		}
	}
	w.close()
	k.known.update(t, w.found)

	living := w.found[:0:0]
	for _, r := range w.found {
		if !r.zombie {
			living = append(living, r)
		}
	}
	return living
}

// sessionTrusted reports whether the session numbered like the root is the root's. While the root is unreaped that is certain. Later
// the number stays taken as long as the session has members, so it is another's only if another process now has that PID.
func (k treeKey) sessionTrusted(t *table) bool {
	if k.Root.PID == 0 {
		return false
	}
	if k.pinned {
		return true
	}
	leader := t.rows[k.Root.PID]
	if leader != nil {
		return leader.Start == k.Root.Start
	}
	for _, r := range t.sessions[k.Root.PID] {
		if r.Start < k.Root.Start {
			return false
		}
	}
	return true
}

// walk collects a tree: whoever is added brings its session and its children along.
type walk struct {
	t        *table
	self     int
	seen     map[int]bool
	sessions map[int]bool
	found    []*row
}

func (w *walk) add(r *row) {
	if r.PID <= 1 || r.PID == w.self || w.seen[r.PID] {
		return
	}
	w.seen[r.PID] = true
	w.found = append(w.found, r)
}

func (w *walk) addSession(sid int) {
	if sid <= 1 || w.sessions[sid] {
		return
	}
	w.sessions[sid] = true
	for _, r := range w.t.sessions[sid] {
		w.add(r)
	}
}

func (w *walk) close() {
	for i := 0; i < len(w.found); i++ {
		r := w.found[i]
		w.addSession(r.sid)
		for _, child := range w.t.children[r.PID] {
			w.add(child)
		}
	}
}
