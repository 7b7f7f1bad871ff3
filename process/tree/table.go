package tree

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Identity names one process. A PID alone may have been reused since.
type Identity struct {
	PID int `json:"pid"`
	// Start is the process's start time, in a unit and from an epoch that only the running system knows.
	Start uint64 `json:"start"`
}

// SameNumberSpace reports whether numbers of processes that were recorded with a NumberSpace are those of this
// program's. One that could not be named is no other's.
func SameNumberSpace(recorded string) bool { return recorded != "" && recorded == NumberSpace() }

// Entry is one process of the process table.
type Entry struct {
	Identity
	Parent  int
	pgid    int
	Session int
	Zombie  bool
	Stopped bool   // by a signal or a debugger
	Blocked bool   // in a wait that no signal but SIGKILL interrupts; false on systems whose table does not say
	mark    Mark   // set by ScanTable only
	cookie  string // set by ScanTable only; "" if it cannot be read, or if the process provably descends from no worker
	threads int
	RSS     int64         // bytes; 0 on systems whose table does not say
	CPU     time.Duration // used by the process and the children it has waited for; 0 on systems whose table does not say
}

// Table is a snapshot of all processes of the system. It is immutable.
type Table struct {
	At   time.Time // when the read of it began
	read time.Time // when it ended
	// CookieHolders are the living processes by cookie. Only ScanTable fills it.
	CookieHolders map[string][]*Entry
	// markHolders are the living processes by mark. Only ScanTable fills it.
	markHolders map[Mark][]*Entry

	entries  map[int]*Entry
	children map[int][]*Entry // by parent
	sessions map[int][]*Entry
}

func newTable(at time.Time, entries []*Entry) *Table {
	t := &Table{
		At: at, read: time.Now(), entries: make(map[int]*Entry, len(entries)),
		children: make(map[int][]*Entry), sessions: make(map[int][]*Entry), CookieHolders: make(map[string][]*Entry),
		markHolders: make(map[Mark][]*Entry),
	}
	self := os.Getpid()
	for _, e := range entries {
		t.entries[e.PID] = e
		t.children[e.Parent] = append(t.children[e.Parent], e)
		t.sessions[e.Session] = append(t.sessions[e.Session], e)
		if e.Zombie || e.PID == self {
			continue
		}
		if e.mark != 0 {
			t.markHolders[e.mark] = append(t.markHolders[e.mark], e)
		}
		if e.cookie != "" {
			t.CookieHolders[e.cookie] = append(t.CookieHolders[e.cookie], e)
		}
	}
	return t
}

// has reports whether the very process is in the table, dead or alive.
func (t *Table) has(id Identity) bool {
	e := t.entries[id.PID]
	return e != nil && e.Start == id.Start
}

// GroupAlive reports whether a process group has members that are not zombies.
func (t *Table) GroupAlive(pgid int) bool {
	for _, e := range t.entries {
		if e.pgid == pgid && !e.Zombie {
			return true
		}
	}
	return false
}

// reads and scans are shared by the whole program.
var (
	reads = sharedReads{read: func(func(*Entry)) (*Table, error) { return readTable() }}
	scans = sharedReads{read: scanTable, keeps: true}
)

// ReadTable reads all processes once, without their marks and cookies. The read begins after the call; those who ask at
// the same time share it.
func ReadTable() (*Table, error) { return reads.after(nil) }

func readTable() (*Table, error) {
	at := time.Now()
	pids, err := listPIDs()
	if err != nil {
		return nil, err
	}
	entries := make([]*Entry, 0, len(pids))
	for _, pid := range pids {
		e, err := ReadEntry(pid)
		if err != nil {
			return nil, err
		}
		if e != nil {
			entries = append(entries, e)
		}
	}
	return newTable(at, entries), nil
}

// errExec means that a process is in execve, so its cookie cannot be read yet.
var errExec = errors.New("the process is executing a program")

const (
	// execTimeout bounds how long one scan waits for processes in execve.
	execTimeout      = time.Second
	execPollInterval = time.Millisecond
	// maxScanRounds bounds how often one scan lists the PIDs, on a machine where processes start all the time.
	maxScanRounds = 50
)

// ScanTable reads all processes with their marks and cookies. A process may fork during the scan, so ScanTable lists
// the PIDs until no new one appears: every process that was alive at the last listing is then in the table. ScanTable
// calls visit, unless it is nil, for each process right after reading it. If a process exists but cannot be read (out
// of descriptors, say) the scan fails, since the process would look dead. A process in execve is read again in each
// round, for at most 1 second.
//
// The scan begins after the call, and those who ask at the same time share it: visit may be called on another
// goroutine. visit must not scan.
func ScanTable(visit func(*Entry)) (*Table, error) { return scans.after(visit) }

// scanTable is ScanTable without sharing.
func scanTable(visit func(*Entry)) (*Table, error) {
	at := time.Now()
	seen := make(map[int]bool)
	var entries []*Entry
	retry := false // a process in execve must be read again
	for round := 0; round < maxScanRounds || retry; round++ {
		if retry {
			time.Sleep(execPollInterval)
		}
		retry = false
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
			e, err := ReadEntry(pid)
			if err == nil && e != nil && !e.Zombie {
				e.mark, err = readMark(pid)
				if err == nil && (e.mark != 0 || !HasMarks()) {
					e.cookie, err = readCookie(pid)
				}
			}
			if errors.Is(err, errExec) {
				if err = nil; time.Since(at) < execTimeout {
					delete(seen, pid)
					retry = true
					continue
				}
			}
			if err != nil {
				return nil, err
			}
			if e == nil {
				continue
			}
			entries = append(entries, e)
			if visit != nil {
				visit(e)
			}
		}
		if !fresh {
			break
		}
	}
	return newTable(at, entries), nil
}

// RecentTable is ScanTable without a visit, or the last scan if that was younger than maxAge at the time of the call.
func RecentTable(maxAge time.Duration) (*Table, error) {
	return scans.since(time.Now().Add(-maxAge), nil)
}

// Identify returns the process that has the PID now; false if there is none or it cannot be read.
func Identify(pid int) (Identity, bool) {
	e, err := ReadEntry(pid)
	if err != nil || e == nil {
		return Identity{}, false
	}
	return e.Identity, true
}

// Exists reports whether the very process is still in the process table, be it as a zombie.
func (id Identity) Exists() bool {
	now, found := Identify(id.PID)
	return found && now == id
}

// sharedReads reads the process table once for all callers that ask while another read is under way: a read takes
// longer the more processes there are, and the more processes end at once, the more ask.
type sharedReads struct {
	read  func(visit func(*Entry)) (*Table, error)
	keeps bool // the last table, for since

	reading sync.Mutex            // held during a read
	last    atomic.Pointer[Table] // nil before the first
	mu      sync.Mutex            // guards next and its visits
	next    *tableRead            // has not begun; nil while nobody waits for it
}

// tableRead is one read, and who waits for it.
type tableRead struct {
	visits []func(*Entry) // nil for one that visits nothing
	done   bool           // guarded by reading, like its result
	table  *Table
	err    error
}

// after returns a table whose read began after the call. visit is called as by read, perhaps on another goroutine.
func (s *sharedReads) after(visit func(*Entry)) (*Table, error) { return s.since(time.Now(), visit) }

// since is after; without a visit, it also takes the last table if its read began after oldest.
func (s *sharedReads) since(oldest time.Time, visit func(*Entry)) (*Table, error) {
	recent := func() bool {
		last := s.last.Load()
		return visit == nil && last != nil && last.At.After(oldest)
	}
	if recent() {
		return s.last.Load(), nil
	}
	s.mu.Lock()
	if s.next == nil {
		s.next = &tableRead{}
	}
	r := s.next
	r.visits = append(r.visits, visit)
	s.mu.Unlock()

	s.reading.Lock()
	defer s.reading.Unlock()
	if recent() {
		return s.last.Load(), nil
	}
	if !r.done { // then r is still the next one
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
		if r.table, r.err = s.read(r.visit); r.err == nil && s.keeps {
			s.last.Store(r.table)
		}
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
