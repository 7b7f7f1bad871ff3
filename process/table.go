package process

import (
	"errors"
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
	cookie          string // only a scan reads it; "" also where it may not be read
	threads         int
	rss             int64         // bytes
	cpu             time.Duration // used by the process and the children it has waited for
}

// table is one look at all processes of the system. It does not change once it is made.
type table struct {
	at       time.Time
	rows     map[int]*row
	children map[int][]*row // by parent
	sessions map[int][]*row
	bearers  map[string][]*row // the living, by cookie; only a scan fills it
}

func newTable(at time.Time, rows []*row) *table {
	t := &table{
		at: at, rows: make(map[int]*row, len(rows)),
		children: make(map[int][]*row), sessions: make(map[int][]*row), bearers: make(map[string][]*row),
	}
	self := os.Getpid()
	for _, r := range rows {
		t.rows[r.PID] = r
		t.children[r.ppid] = append(t.children[r.ppid], r)
		t.sessions[r.sid] = append(t.sessions[r.sid], r)
		if r.cookie != "" && !r.zombie && r.PID != self {
			t.bearers[r.cookie] = append(t.bearers[r.cookie], r)
		}
	}
	return t
}

// errExecuting says that a process's cookie cannot be read just now.
var errExecuting = errors.New("the process is executing a program")

const (
	// executePatience is how long a scan waits for processes that execute a program to be through.
	executePatience = time.Second
	executePause    = time.Millisecond
)

// scanRounds bounds how often a scan lists the PIDs anew, on a machine where processes start all the time.
const scanRounds = 50

// scan reads all processes with their cookies. A process may fork while the table is read, so the PIDs are listed until there are no new
// ones: then every process that was alive at the last listing has been read, and a tree without members in the table has none. Each
// process is shown to visit as soon as it is read. When a process that exists cannot be read, for want of a descriptor say, the scan
// fails: what it had missed would look like gone. One whose cookie cannot be read while it executes a program is read anew in each round,
// for a second at most.
func scan(visit func(*row)) (*table, error) {
	at := time.Now()
	seen := make(map[int]bool)
	var rows []*row
	waits := false // for a process that executes a program
	for round := 0; round < scanRounds || waits; round++ {
		if waits {
			time.Sleep(executePause)
		}
		waits = false
		pids, err := listPIDs()
		if err != nil {
			return nil, err
		}
		fresh := false
		for _, pid := range pids {
			if seen[pid] {
				continue
			}
			seen[pid], fresh = true, true
			r, err := readRow(pid)
			if err == nil && r != nil && !r.zombie {
				r.cookie, err = cookieOf(pid)
			}
			if errors.Is(err, errExecuting) {
				if err = nil; time.Since(at) < executePatience {
					delete(seen, pid)
					waits = true
					continue
				}
			}
			if err != nil {
				return nil, err
			}
			if r != nil {
				rows = append(rows, r)
				visit(r)
			}
		}
		if !fresh {
			break
		}
	}
	return newTable(at, rows), nil
}

// onlyRead is for scans that need no more than the table.
func onlyRead(*row) {}

// glance reads all processes once, without their cookies.
func glance() (*table, error) {
	at := time.Now()
	pids, err := listPIDs()
	if err != nil {
		return nil, err
	}
	rows := make([]*row, 0, len(pids))
	for _, pid := range pids {
		r, err := readRow(pid)
		if err != nil {
			return nil, err
		}
		if r != nil {
			rows = append(rows, r)
		}
	}
	return newTable(at, rows), nil
}

// identify returns the process that has the PID now; false if none has, or it cannot be read.
func identify(pid int) (identity, bool) {
	r, err := readRow(pid)
	if err != nil || r == nil {
		return identity{}, false
	}
	return r.identity, true
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
