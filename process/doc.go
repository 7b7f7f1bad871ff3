// Package process is the edge to the operating system: it starts subprocesses, speaks to them, measures them and ends them, whole
// trees at a time. It knows nothing of Temporal.
//
// A Supervisor owns the subprocesses of one host. Each incarnation of a worker is one Process, in a session and process group of
// its own, marked by a cookie in its environment that every descendant inherits. Its tree is the process group, every process
// that carries the cookie, every process of a session that such a process belongs to, and all their descendants. One kind of
// descendant escapes that definition: a process that clears its environment, leaves the session and loses its parent, all
// between two scans of the process table.
//
// Nothing outlives its owner. Stop ends a tree; a reaper process ends all trees when the program that hosts the Supervisor dies
// without doing so; and the next Open on the same state folder ends what even that left over.
//
// On Linux the program that hosts a Supervisor becomes the parent of orphaned descendants, and reaps those that die. Children which
// other code in the program starts are left to that code, provided that they stay in the program's session or are being waited for.
//
// Linux is the home of this package. On macOS it works with process groups and cookies, without adopting orphans; on other
// systems Open returns an error.
package process
