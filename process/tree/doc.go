// Package tree finds, measures, signals and kills the processes of an incarnation.
//
// A tree is the process group of the incarnation's first process, every process that carries the incarnation's cookie in its
// environment, every session that such a process belongs to, and all their descendants. A process escapes its tree only if it clears
// its environment, leaves the session and loses its parent between two scans of the process table.
//
// A PID is never trusted alone: an Identity holds the start time, too.
package tree
