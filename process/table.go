package process

import (
	"os"
	"time"
)

// identity is a process beyond doubt: a PID alone may have been given to another process since.
type identity struct {
	PID int `json:"pid"`
	// Start is when the process started, in a unit and from an epoch that only the running system knows.
	Start uint64 `json:"start"`
}

// row is one process of the process table.
type row struct {
	identity
	ppid, pgid, sid int
	zombie          bool
	threads         int
	rss             int64         // bytes
	cpu             time.Duration // used by the process and the children it has waited for
}

// table is one look at all processes of the system.
type table struct {
	at       time.Time
	rows     map[int]*row
	children map[int][]*row // by parent
	sessions map[int][]*row
	// cookieOf reads the cookie in a process's environment; "" when it has none or may not be read.
	cookieOf func(pid int) string
	bearers  map[string][]*row // by cookie; built when first asked for
}

func newTable(at time.Time, rows []*row, cookieOf func(int) string) *table {
	t := &table{
		at: at, cookieOf: cookieOf,
		rows: make(map[int]*row, len(rows)), children: make(map[int][]*row), sessions: make(map[int][]*row),
	}
	for _, r := range rows {
		t.rows[r.PID] = r
		t.children[r.ppid] = append(t.children[r.ppid], r)
		t.sessions[r.sid] = append(t.sessions[r.sid], r)
	}
	return t
}

// byCookie returns every living process that carries a cookie of Tempool's, by cookie.
func (t *table) byCookie() map[string][]*row {
	if t.bearers != nil {
		return t.bearers
	}
	t.bearers = make(map[string][]*row)
	self := os.Getpid()
	for _, r := range t.rows {
		if r.zombie || r.PID == self {
			continue
		}
		if cookie := t.cookieOf(r.PID); cookie != "" {
			t.bearers[cookie] = append(t.bearers[cookie], r)
		}
	}
	return t.bearers
}

// alive reports whether the very process id names is in the table and not a zombie.
func (t *table) alive(id identity) bool {
	r := t.rows[id.PID]
	return r != nil && r.Start == id.Start && !r.zombie
}

// groupLives reports whether a process group has members that are not zombies.
func (t *table) groupLives(pgid int) bool {
	for _, r := range t.rows {
		if r.pgid == pgid && !r.zombie {
			return true
		}
	}
	return false
}
