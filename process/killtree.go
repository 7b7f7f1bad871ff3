package process

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	// killPatience is how long killTree tries: a process in an uninterruptible wait does not die before that wait is over.
	killPatience = 5 * time.Second
	// plainKills is how many scans killTree kills whatever it finds. A tree that still has members then may be forking faster than it
	// is killed, so from there on it is stopped first.
	plainKills = 3
	// freezeScans bounds how often one freeze looks for members that were forked before their parent was stopped.
	freezeScans = 20
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
	var report killReport
	signalled := make(map[identity]bool)
	frozen := make(map[identity]bool)
	deadline := time.Now().Add(killPatience)
	pause := time.Millisecond
	for scan, freezes := 0, 0; ; scan++ {
		t, err := readTable()
		if err != nil {
			report.err = err
			return report
		}
		members := t.members(k)
		if len(members) == 0 {
			return report
		}
		if time.Now().After(deadline) {
			for _, m := range members {
				report.left = append(report.left, m.identity)
			}
			return report
		}
		if scan >= plainKills && freezes < freezeScans && freeze(members, frozen) {
			freezes++
			continue
		}
		freezes = 0
		for _, m := range members {
			if err := signalIdentity(m.identity, syscall.SIGKILL); err == nil && !signalled[m.identity] {
				signalled[m.identity] = true
				report.killed++
			}
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// freeze stops the members that are not in frozen yet, and reports whether there were any.
func freeze(members []*row, frozen map[identity]bool) bool {
	fresh := false
	for _, m := range members {
		if frozen[m.identity] {
			continue
		}
		frozen[m.identity] = true
		if err := signalIdentity(m.identity, sigStop); !errors.Is(err, syscall.ESRCH) {
			fresh = true
		}
	}
	return fresh
}
