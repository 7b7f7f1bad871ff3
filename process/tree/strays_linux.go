package tree

import "os"

// KillStrays kills the living processes that this program has adopted, that descend from a worker, and that do not belong to a tree, with
// all their descendants. belongs reports whether a process, or any with its mark, belongs to a tree that is to live. It returns how many
// processes it killed. Children of other code in this program are not adopted: they have no mark.
func KillStrays(belongs func(Identity, int, Mark) bool) (killed int, err error) {
	t, err := ReadTable()
	if err != nil {
		return 0, err
	}
	strays := &MemberSet{ids: make(map[Identity]struct{})}
	for _, child := range t.children[os.Getpid()] {
		if _, started := startedChildren.pids.Load(child.PID); started || child.Zombie {
			continue
		}
		mark, err := readMark(child.PID)
		if err != nil || mark == 0 || belongs(child.Identity, child.Session, mark) {
			continue
		}
		strays.ids[child.Identity] = struct{}{}
	}
	if len(strays.ids) == 0 {
		return 0, nil
	}
	adopted := strays.List()
	report := Kill(Key{Known: strays})
	for _, id := range adopted {
		ReapOrphan(id)
	}
	return report.Killed, report.Err
}
