// Package process starts subprocesses, connects to them, measures them and ends them, whole process trees at a time. It
// does not import Temporal, gRPC or the client.
//
// A Supervisor owns the subprocesses of one host. Each incarnation of a worker is one Process, in a session and process
// group of its own, with a mark and a cookie that every descendant inherits. Package tree defines what belongs to its
// process tree.
//
// No subprocess outlives its agent. Stop ends a tree; a reaper process kills all trees if the agent dies without
// stopping them; and the next Open on the same state directory kills what even the reaper missed.
//
// On Linux the program that hosts a Supervisor becomes a child subreaper. It reaps orphaned descendants, and kills
// those that have left their tree. Children of other code in the program are left to that code, provided that they stay
// in the program's session or are being waited for.
//
// On macOS the package uses process groups and cookies and adopts no orphans. On other systems it does not compile.
package process
