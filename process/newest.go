package process

import "maps"

// maxOthers is how many workers without a process and without an exit that Get finds a Supervisor remembers at least. A host that runs for months may
// see any number of names.
const maxOthers = 4 * maxExits

// noteNewestLocked records that an incarnation of a worker was started. Of workers that it has to forget, a start that is late by thousands of others is
// not recognised as superseded; its workflow is not in that incarnation any more.
func (s *Supervisor) noteNewestLocked(worker string, incarnation int64) {
	s.newest[worker] = max(s.newest[worker], incarnation)
	if len(s.newest) <= max(maxOthers, 2*s.newestKept) {
		return
	}
	known := map[string]bool{worker: true}
	for k := range s.starting {
		known[k.worker] = true
	}
	for k := range s.live {
		known[k.worker] = true
	}
	for k := range s.ended {
		known[k.worker] = true
	}
	maps.DeleteFunc(s.newest, func(worker string, _ int64) bool { return !known[worker] })
	s.newestKept = len(s.newest)
}
