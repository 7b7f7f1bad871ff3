package tree

import (
	"context"
	"errors"
	"strconv"

	"github.com/shirou/gopsutil/v3/common"
	gopsutil "github.com/shirou/gopsutil/v3/process"
	"golang.org/x/sys/unix"
)

// ownProc has gopsutil read the /proc of the agent's processes, whatever HOST_PROC says.
var ownProc = context.WithValue(context.Background(), common.EnvKey, common.EnvMap{common.HostProcEnvKey: "/proc"})

// PSSOf reads the proportional set size of one process: each page counts by the share of processes that map it. A
// process that has ended has 0. It is not readable if the system or its owner does not permit it.
func PSSOf(id Identity) (bytes int64, readable bool) {
	maps, err := (&gopsutil.Process{Pid: int32(id.PID)}).MemoryMapsWithContext(ownProc, true)
	switch {
	case err == nil:
		return 1024 * int64((*maps)[0].Pss), true
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOENT) && !id.Exists():
		return 0, true
	}
	return 0, false
}

// UsageOf reads the usage of one process from /proc, except what its entry has. A value that may not be read is 0.
func UsageOf(id Identity) Usage {
	p := &gopsutil.Process{Pid: int32(id.PID)}
	var used Usage
	if io, err := p.IOCountersWithContext(ownProc); err == nil {
		used.read, used.wrote = int64(io.ReadBytes), int64(io.WriteBytes)
	}
	var dir unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(id.PID)+"/fd", &dir) == nil && dir.Size > 0 { // the number since Linux 6.2
		used.openFiles = int(dir.Size)
	} else if files, err := p.NumFDsWithContext(ownProc); err == nil {
		used.openFiles = int(files)
	}
	return used
}
