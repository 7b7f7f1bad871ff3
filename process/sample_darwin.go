package process

import (
	"time"

	gopsutil "github.com/shirou/gopsutil/v3/process"
)

// usageOf asks the system about one process alone. There is no PSS, and no count of bytes per process.
func usageOf(id identity) usage {
	var used usage
	p := &gopsutil.Process{Pid: int32(id.PID)}
	if memory, err := p.MemoryInfo(); err == nil {
		used.rss = int64(memory.RSS)
	}
	if threads, err := p.NumThreads(); err == nil {
		used.threads = int(threads)
	}
	if times, err := p.Times(); err == nil {
		used.cpu = time.Duration((times.User + times.System) * float64(time.Second))
	}
	if files, err := p.NumFDs(); err == nil {
		used.openFiles = int(files)
	}
	return used
}
