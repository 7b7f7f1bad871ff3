package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// killTimeout bounds Kill: a process in an uninterruptible wait does not die before the wait ends.
	killTimeout = 5 * time.Second
	// normalPriorityRounds is how many scans Kill makes at normal priority, and normalPriorityTime how long, scans that
	// other kills share. A tree that still has members after that may be a fork bomb, which leaves little CPU time to
	// other processes.
	normalPriorityRounds = 3
	normalPriorityTime   = time.Second
)

// KillReport is the result of Kill.
type KillReport struct {
	Killed    int
	Survivors []Identity // still alive at the timeout
	Err       error      // the process table could not be read until the timeout
}

// Complete reports whether the whole tree is gone.
func (r KillReport) Complete() bool { return r.Err == nil && len(r.Survivors) == 0 }

func (r KillReport) String() string {
	switch {
	case r.Err != nil:
		return fmt.Sprintf("processes may have survived: %v", r.Err)
	case len(r.Survivors) > 0:
		return fmt.Sprintf("%d processes survived SIGKILL for %s; the first has PID %d", len(r.Survivors), killTimeout,
			r.Survivors[0].PID)
	case r.Killed > 0:
		return fmt.Sprintf("killed %d processes", r.Killed)
	}
	return "no process was left"
}

// Kill sends SIGKILL to every member of the tree and scans again until no living member is found, for at most 5
// seconds. It reaps those that this program has adopted. If the report is Complete, the tree is gone.
func Kill(k Key) KillReport {
	if k.Known == nil {
		k.Known = &MemberSet{}
	}
	began := time.Now()
	killer := killer{tree: k, deadline: began.Add(killTimeout), signalled: make(map[Identity]bool)}
	for round := 0; round == 0 || round < normalPriorityRounds && time.Since(began) < normalPriorityTime; round++ {
		if killer.round(ScanTable) {
			return killer.report
		}
	}
	atHighPriority(func() {
		for !killer.round(scanTable) { // its own: others do not scan at this priority
		}
	})
	return killer.report
}

// killer is the state of one Kill.
type killer struct {
	tree         Key
	deadline     time.Time
	delay        time.Duration
	signalled    map[Identity]bool
	membersKnown bool // the first scan is complete
	report       KillReport
}

// round scans and kills once. It reports whether Kill is finished.
func (k *killer) round(scan func(visit func(*Entry)) (*Table, error)) bool {
	// A process with the tree's mark is killed during the scan, right after it is read: it may be about to fork a
	// successor and exit. The first scan kills nobody, since it must find all members: a child that cleared its
	// environment belongs to the tree only through its parent.
	t, err := scan(func(e *Entry) {
		if k.membersKnown && k.tree.marks(e) && !e.Zombie {
			k.kill(e)
		}
	})
	if err != nil {
		if time.Now().After(k.deadline) {
			k.report.Err = err
			return true
		}
		k.sleep() // the resource that the host has run out of may become available again
		return false
	}
	members := t.Members(k.tree)
	k.membersKnown = true
	defer func() { // after the kills: a fork bomb leaves many zombies, and each of them slows the next scan
		for _, id := range k.tree.Known.List() {
			ReapOrphan(id)
		}
	}()
	killCgroup(k.tree.Cgroup) // after the scan, so that the members are known and their zombies can be reaped
	if len(members) == 0 {
		return true
	}
	if time.Now().After(k.deadline) {
		for _, m := range members {
			k.report.Survivors = append(k.report.Survivors, m.Identity)
		}
		return true
	}
	for _, m := range members {
		k.kill(m)
	}
	k.sleep()
	return false
}

// killCgroup kills all processes of a cgroup at once. It does nothing before Linux 5.14; the tree is killed process by
// process in any case.
func killCgroup(dir string) {
	if dir == "" {
		return
	}
	if file, err := os.OpenFile(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY, 0); err == nil {
		_, _ = file.WriteString("1")
		file.Close()
	}
}

func (k *killer) sleep() {
	k.delay = min(max(2*k.delay, time.Millisecond), 20*time.Millisecond)
	time.Sleep(k.delay)
}

func (k *killer) kill(e *Entry) {
	if e.PID == os.Getpid() {
		return // this process itself may carry the cookie of an outer tree
	}
	if err := Signal(e.Identity, syscall.SIGKILL); err == nil && !k.signalled[e.Identity] {
		k.signalled[e.Identity] = true
		k.report.Killed++
	}
}
