package tree

import "os"

// maxDescent bounds the ancestors that Belongs reads.
const maxDescent = 256

// Belongs reports whether a living process is, or descends from, a member of a tree, by a member's own facts: its PID,
// session, cookie or an earlier scan. An orphan that this program has adopted, and did not start, belongs as well.
// Belongs reads only the process and its ancestors, not the process table. A process that cannot be read does not
// belong.
func Belongs(pid int, isRoot func(pid int) bool, isKnown func(Identity) bool, hasCookie func(string) bool) bool {
	for range maxDescent {
		if pid <= 1 || pid == os.Getpid() {
			return false
		}
		e, err := ReadEntry(pid)
		if err != nil || e == nil {
			return false
		}
		if isRoot(e.PID) || isRoot(e.Session) || isRoot(e.pgid) || isKnown(e.Identity) {
			return true
		}
		if cookie, err := readCookie(pid); err == nil && cookie != "" && hasCookie(cookie) {
			return true
		}
		if e.Parent == os.Getpid() {
			return adopted(e)
		}
		pid = e.Parent
	}
	return true
}

// adopted reports whether a child of this program is an orphan: nobody here started it, and unlike a child of other
// code in this program it has left our session.
func adopted(e *Entry) bool {
	if _, started := startedChildren.pids.Load(e.PID); started {
		return false
	}
	own, err := ReadEntry(os.Getpid())
	return err == nil && own != nil && e.Session != own.Session
}
