package gateway

import "github.com/tempool/tempool/process"

// Processes are the incarnations of this host, as a process.Supervisor has them. Get may know ended ones, too; List tells those
// that live, starting ones included.
type Processes interface {
	Get(worker string, incarnation int64) (*process.Process, bool)
	List() []*process.Process
}
