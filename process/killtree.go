package process

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	// killPatience is how long killTree tries: a process in an uninterruptible wait does not die before that wait is over.
	killPatience = 5 * time.Second
	// plainKills is how many scans killTree makes at ordinary priority. A tree that still has members then may be forking so fast that it
	// leaves little of the machine to anybody else.
	plainKills = 3
)

// killReport says what killTree did.
type killReport struct {
	killed int
	left   []identity // did not die in time
	err    error      // the process table could not be read
}

func (r killReport) String() string {
	switch {
	case r.err != nil:
		return fmt.Sprintf("processes may be left over: %v", r.err)
	case len(r.left) > 0:
		return fmt.Sprintf("%d processes did not die within %s of KILL, the first has PID %d", len(r.left), killPatience, r.left[0].PID)
	case r.killed > 0:
		return fmt.Sprintf("killed %d left-over processes", r.killed)
	}
	return "nothing was left over"
}

// killTree sends KILL to every member of the tree and looks again until none is found alive, for at most killPatience. It returns
// only then, so a caller may rely on the tree being gone when the report has nothing left.
func killTree(k treeKey) killReport {
	if k.known == nil {
		k.known = &memberSet{}
	}
	hunt := treeHunt{key: k, deadline: time.Now().Add(killPatience), signalled: make(map[identity]bool)}
	for range plainKills {
		if hunt.round() {
			return hunt.report
		}
	}
	urgently(func() {
		for !hunt.round() {
		}
	})
	return hunt.report
}

// treeHunt is one killTree in progress.
type treeHunt struct {
	key       treeKey
	deadline  time.Time
	pause     time.Duration
	signalled map[identity]bool
	knows     bool // the members there were at first
	report    killReport
}

// round scans and kills once, and reports whether that was the last time.
func (h *treeHunt) round() bool {
	// Who carries the cookie dies in the middle of the scan, as soon as it is read: it may be about to fork its successor and exit. Not in
	// the first scan, which is there to know all members: a child that cleared its environment belongs to the tree only by its parent.
	t, err := scan(func(r *row) {
		if h.knows && r.cookie == h.key.Cookie && !r.zombie {
			h.kill(r)
		}
	})
	if err != nil {
		if time.Now().After(h.deadline) {
			h.report.err = err
			return true
		}
		h.rest() // whatever the host has run out of may come back
		return false
	}
	members := t.members(h.key)
	h.knows = true
	if len(members) == 0 {
		return true
	}
	if time.Now().After(h.deadline) {
		for _, m := range members {
			h.report.left = append(h.report.left, m.identity)
		}
		return true
	}
	for _, m := range members {
		h.kill(m)
	}
	// The dead make every further scan slower, and a tree that forks fast leaves many.
	for _, dead := range t.children[os.Getpid()] {
		if dead.zombie && h.signalled[dead.identity] {
			reapAdopted(dead.identity)
		}
	}
	h.rest()
	return false
}

func (h *treeHunt) rest() {
	h.pause = min(max(2*h.pause, time.Millisecond), 20*time.Millisecond)
	time.Sleep(h.pause)
}

func (h *treeHunt) kill(r *row) {
	if r.PID == os.Getpid() {
		return // should this process itself run under the cookie of some outer tree
	}
	if err := signalIdentity(r.identity, syscall.SIGKILL); err == nil && !h.signalled[r.identity] {
		h.signalled[r.identity] = true
		h.report.killed++
	}
}
