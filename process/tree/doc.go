// Package tree finds, measures, signals and kills the processes of an incarnation.
//
// A tree is the session of the incarnation's first process, every process that carries the incarnation's mark, every
// process of any worker that carries the incarnation's cookie in its environment, every session that such a process
// belongs to, and all their descendants. A process that changes its mark, clears its environment, leaves the session
// and loses its parent between two scans of the process table leaves its tree; it has then escaped, and the program
// that adopts it kills it.
//
// Systems without marks have only the cookie, which anybody can copy: there a process in a session of somebody else is
// not a member.
//
// A PID is never trusted alone: an Identity holds the start time, too.
package tree
