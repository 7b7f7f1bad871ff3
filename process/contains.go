package process

import "github.com/tempool/tempool/process/tree"

// Contains reports whether a process belongs to the tree of a live incarnation, so that it is a worker's and not a client's or the
// operator's. It costs some reads of /proc for each of the process's ancestors.
func (s *Supervisor) Contains(pid int) bool {
	live := s.List()
	roots, cookies := make(map[int]bool, len(live)), make(map[string]bool, len(live))
	for _, p := range live {
		if d := p.kind.describe(); d.hasTree {
			roots[d.pid], cookies[d.cookie] = true, true
		}
	}
	return tree.Belongs(pid, func(pid int) bool { return roots[pid] }, func(id tree.Identity) bool {
		for _, p := range live {
			if p.members.Has(id) {
				return true
			}
		}
		return false
	}, func(cookie string) bool { return cookies[cookie] })
}
