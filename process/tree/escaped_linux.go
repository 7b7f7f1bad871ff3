package tree

import (
	"errors"
	"os"
	"sync"
	"time"
)

// owners say which processes belong to a tree of theirs: *func(*Entry) bool → struct{}. All of this program's are
// asked, since a program adopts the processes of all its trees.
var owners sync.Map

// OwnTrees excludes from KillEscaped the processes for which belongs is true, until release is called.
func OwnTrees(belongs func(*Entry) bool) (release func()) {
	owners.Store(&belongs, struct{}{})
	return func() { owners.Delete(&belongs) }
}

// KillEscaped kills the living processes that this program has adopted, that descend from a worker, and that belong to
// no tree which is to live, with all their descendants. It returns how many it killed. Children of other code in this
// program have no mark and are left alone.
func KillEscaped() (killed int, err error) {
	children, err := otherChildren()
	if err != nil {
		return 0, err
	}
	escaped := &MemberSet{ids: make(map[Identity]time.Time)}
	for _, child := range children {
		if mark, err := readMark(child.PID); err == nil && mark != 0 && !isOwned(child, mark) {
			escaped.ids[child.Identity] = time.Time{} // which any table may correct
		}
	}
	if len(escaped.ids) == 0 {
		return 0, nil
	}
	adopted := escaped.List()
	report := Kill(Key{Known: escaped})
	for _, id := range adopted {
		ReapOrphan(id)
	}
	return report.Killed, report.Err
}

// otherChildren are the living children of this program that StartChild has not started. Where the kernel lists
// children, they are found without reading those that it has started, and the next call finds one that this call misses
// because another ended meanwhile.
func otherChildren() (others []*Entry, err error) {
	pids, err := readChildren(os.Getpid())
	if errors.Is(err, errNoFamilies) {
		pids, err = listPIDs()
	}
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if _, started := startedChildren.pids.Load(pid); started {
			continue
		}
		e, err := ReadEntry(pid)
		if err != nil {
			return nil, err
		}
		if e != nil && e.Parent == os.Getpid() && !e.Zombie {
			others = append(others, e)
		}
	}
	return others, nil
}

func isOwned(e *Entry, mark Mark) bool {
	if _, owned := living.Load(mark); owned {
		return true
	}
	owned := false
	owners.Range(func(key, _ any) bool {
		owned = (*key.(*func(*Entry) bool))(e)
		return !owned
	})
	return owned
}
