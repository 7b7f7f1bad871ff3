package tree

import (
	"time"

	gopsutil "github.com/shirou/gopsutil/v3/process"
)

// PSSOf never succeeds: macOS has no PSS.
func PSSOf(Identity) (bytes int64, readable bool) { return 0, false }

// UsageOf reads the usage of one process. macOS has no I/O counters per process.
func UsageOf(id Identity) Usage {
	var used Usage
	p := &gopsutil.Process{Pid: int32(id.PID)}
	if memory, err := p.MemoryInfo(); err == nil {
		used.RSS = int64(memory.RSS)
	}
	if threads, err := p.NumThreads(); err == nil {
		used.threads = int(threads)
	}
	if times, err := p.Times(); err == nil {
		used.CPU = time.Duration((times.User + times.System) * float64(time.Second))
	}
	if files, err := p.NumFDs(); err == nil {
		used.openFiles = int(files)
	}
	return used
}
