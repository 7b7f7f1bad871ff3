package tree

import (
	"os"
	"sync"
	"time"
)

// Key identifies the process tree of one incarnation.
type Key struct {
	// Root leads the session and process group. Zero until the process was spawned.
	Root   Identity `json:"root"`
	Cookie string   `json:"cookie"`
	Mark   Mark     `json:"mark,omitempty"`
	// Cgroup is the directory of the incarnation's cgroup; empty for none.
	Cgroup string `json:"cgroup,omitempty"`
	// Unreaped means that nobody has waited for Root, so its number cannot have been reused for a process, session or
	// group.
	Unreaped bool `json:"-"`
	// OfEngine means that Root is the client of a container engine: the network of the tree is that of the containers, not
	// that of Root.
	OfEngine bool `json:"-"`
	// Known are members found earlier. They stay members whatever they do to their environment, session and parent.
	Known *MemberSet `json:"-"`
}

// MemberSet is a set of processes, safe for concurrent use. A nil set is empty and stays empty.
type MemberSet struct {
	mu  sync.Mutex
	ids map[Identity]time.Time // until when they were there: the end of the last read that found them
	not map[Identity]time.Time // what Exclude has named, and when
}

// Exclude removes a process that has become the root of a tree of its own; a table from before does not add it again.
func (s *MemberSet) Exclude(id Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.not == nil {
		s.not = make(map[Identity]time.Time)
	}
	s.not[id] = time.Now()
	delete(s.ids, id)
}

// List returns the members in no order.
func (s *MemberSet) List() []Identity {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]Identity, 0, len(s.ids))
	for id := range s.ids {
		ids = append(ids, id)
	}
	return ids
}

// Has reports whether the set contains the process.
func (s *MemberSet) Has(id Identity) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.ids[id]
	return found
}

// update adds the members and removes processes that are no longer in the table. Zombies stay: they are still to be
// reaped. So do processes that a later read has found: tables come in any order.
func (s *MemberSet) update(t *Table, members []*Entry) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, found := range s.ids {
		if !t.has(id) && !t.At.Before(found) {
			delete(s.ids, id)
		}
	}
	if s.ids == nil {
		s.ids = make(map[Identity]time.Time, len(members))
	}
	for id, excluded := range s.not {
		if !t.has(id) && t.At.After(excluded) {
			delete(s.not, id)
		}
	}
	for _, m := range members {
		if _, excluded := s.not[m.Identity]; !excluded && t.read.After(s.ids[m.Identity]) {
			s.ids[m.Identity] = t.read
		}
	}
}

// Members returns the living processes of k's tree, parents before their children, and updates k.Known. The calling
// process is never a member.
func (t *Table) Members(k Key) []*Entry {
	w := treeWalk{t: t, self: os.Getpid(), seen: make(map[int]bool), sessions: make(map[int]bool)}
	if own := t.entries[w.self]; own != nil {
		w.sessions[own.Session] = true // a member in our own session must not make the whole session members
	}
	if t.has(k.Root) {
		w.add(t.entries[k.Root.PID])
	}
	if k.ownsSession(t) {
		w.addSession(k.Root.PID)
	}
	if k.Cookie != "" {
		for _, e := range t.CookieHolders[k.Cookie] {
			if HasMarks() || t.ledByHolder(e) {
				w.add(e)
			}
		}
	}
	if k.Mark != 0 {
		for _, e := range t.markHolders[k.Mark] {
			w.add(e)
		}
	}
	for _, id := range k.Known.List() {
		if t.has(id) {
			w.add(t.entries[id.PID])
		}
	}
	w.expand()
	k.Known.update(t, w.members)

	living := w.members[:0:0]
	for _, e := range w.members {
		if !e.Zombie {
			living = append(living, e)
		}
	}
	return living
}

// marks reports whether e carries the mark or the cookie of k's tree.
func (k Key) marks(e *Entry) bool {
	return k.Mark != 0 && e.mark == k.Mark || HasMarks() && k.Cookie != "" && e.cookie == k.Cookie
}

// ledByHolder reports whether a cookie holder is of a session that belongs to the incarnation: its leader also has the
// cookie, or is gone. In a foreign session somebody has copied the cookie.
func (t *Table) ledByHolder(e *Entry) bool {
	leader := t.entries[e.Session]
	return leader == nil || leader.Zombie || leader.cookie == e.cookie
}

// ownsSession reports whether the session with the root's number is the root's. That is certain while the root is
// unreaped. Later the number stays taken as long as the session has members, so the session is another's only if
// another process now has that PID.
func (k Key) ownsSession(t *Table) bool {
	if k.Root.PID == 0 {
		return false
	}
	if k.Unreaped {
		return true
	}
	if leader := t.entries[k.Root.PID]; leader != nil {
		return leader.Start == k.Root.Start
	}
	for _, e := range t.sessions[k.Root.PID] {
		if e.Start < k.Root.Start {
			return false
		}
	}
	return true
}

// treeWalk collects a tree: each member brings its session and its children.
type treeWalk struct {
	t        *Table
	self     int
	seen     map[int]bool
	sessions map[int]bool
	members  []*Entry
}

func (w *treeWalk) add(e *Entry) {
	if e.PID <= 1 || e.PID == w.self || w.seen[e.PID] {
		return
	}
	w.seen[e.PID] = true
	w.members = append(w.members, e)
}

func (w *treeWalk) addSession(sid int) {
	if sid <= 1 || w.sessions[sid] {
		return
	}
	w.sessions[sid] = true
	for _, e := range w.t.sessions[sid] {
		w.add(e)
	}
}

// expand adds sessions and children until no new member appears.
func (w *treeWalk) expand() {
	for i := 0; i < len(w.members); i++ {
		e := w.members[i]
		w.addSession(e.Session)
		for _, child := range w.t.children[e.PID] {
			w.add(child)
		}
	}
}

// maxDescent bounds the ancestors that Belongs reads.
const maxDescent = 256

// Belongs reports whether a living process is, or descends from, a member of a tree, by a member's own facts: its mark,
// whoever's, PID, session, cookie or an earlier scan, which isKnown knows. An orphan that this program has adopted, and
// did not start, belongs as well. Belongs reads only the process and its ancestors, not the process table. A process
// that cannot be read does not belong.
func Belongs(pid int, roots map[int]bool, cookies map[string]bool, isKnown func(Identity) bool) bool {
	for range maxDescent {
		if pid <= 1 || pid == os.Getpid() {
			return false
		}
		e, err := ReadEntry(pid)
		if err != nil || e == nil {
			return false
		}
		mark, _ := readMark(pid)
		if mark != 0 || roots[e.PID] || roots[e.Session] || roots[e.pgid] || isKnown(e.Identity) {
			return true
		}
		if cookie, err := readCookie(pid); err == nil && cookie != "" && cookies[cookie] {
			return true
		}
		if e.Parent == os.Getpid() {
			return adopted(e)
		}
		pid = e.Parent
	}
	return true
}

// adopted reports whether a child of this program is an orphan: nobody here started it, and unlike a child of other
// code in this program it has left our session.
func adopted(e *Entry) bool {
	if _, started := startedChildren.pids.Load(e.PID); started {
		return false
	}
	own, err := ReadEntry(os.Getpid())
	return err == nil && own != nil && e.Session != own.Session
}
