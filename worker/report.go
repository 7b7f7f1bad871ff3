package worker

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/disk"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/buildinfo"
)

// newReport is what does not change while the agent runs.
func (a *Agent) newReport() *api.AgentReport {
	r := &api.AgentReport{
		Endpoint: a.gateway.Endpoint(), Access: api.AccessOpen, Version: buildinfo.Read().String(), Platform: runtime.GOOS +
			"/" + runtime.GOARCH,
		Labels: a.config.Labels, Capacity: a.config.Capacity, Root: os.Geteuid() == 0, OpenFiles: maxOpenFiles(),
		Socket: filepath.Join(a.config.StateDir, SocketName), KeepsProcesses: a.config.KeepProcesses,
	}
	r.Hostname, _ = os.Hostname() // a machine without a name
	switch {
	case a.config.Listen == "":
		r.Access = api.AccessSocket
	case a.config.Security.TokensFile != "":
		r.Access = api.AccessTokens
	case a.config.Security.ClientCAFile != "":
		r.Access = api.AccessCertificates
	}
	r.Cgroups, r.NoCgroups = a.processes.Cgroups()
	return r
}

// heartbeat is the content of each heartbeat.
func (a *Agent) heartbeat() api.HostHeartbeat {
	heartbeat := a.host.Heartbeat()
	heartbeat.Waiting, heartbeat.Figures = a.gateway.Waiting(), a.gateway.LastMinute(maxFigures)
	heartbeat.MCPSessions = a.gateway.MCPSessions()
	for i, p := range heartbeat.Processes {
		heartbeat.Processes[i].MCPClient = a.gateway.MCPClient(p.Worker, p.Incarnation)
	}
	if r := a.report.Load(); r != nil {
		report := *r
		report.Clock, report.Epoch, report.Draining = time.Now().UTC(), a.membership.epoch(), a.slots.isDraining()
		if usage, err := disk.Usage(a.config.StateDir); err == nil {
			access := unix.Access(a.config.StateDir, unix.W_OK)
			report.DiskFreeBytes, report.DiskTotalBytes = writableBytes(usage, access), int64(usage.Total)
		}
		heartbeat.Agent = &report
	}
	return heartbeat
}

// writableBytes is what is free on a disk: nothing if no further file can be made. access is why nobody may write.
func writableBytes(usage *disk.UsageStat, access error) int64 {
	if usage.InodesTotal > 0 && usage.InodesFree == 0 || errors.Is(access, unix.EROFS) {
		return 0
	}
	return int64(usage.Free)
}

const (
	// maxHeartbeat bounds the processes in a heartbeat, in bytes of JSON, for a host whose heartbeats do not arrive is
	// suspect. Temporal fails an activity whose heartbeat has more than 2 MiB, and the SDK gives one half of its throttle
	// interval to arrive: on a machine with thirty busy programs on two cores, 1.5 MiB took longer, each time.
	maxHeartbeat = 1 << 19
	// maxFigures bounds the pools in a heartbeat with their figures, which have less than 4 KiB each.
	maxFigures = 100
	// fewProcesses are certain to fit, with 3 KiB each.
	fewProcesses = 150
)

// bounded is a heartbeat that fits. Where not all of it does, it has of the last workers only which they are and what
// they have served, which counts if the host is lost; and if even that is too much, it leaves out the last of them.
func bounded(h api.HostHeartbeat) api.HostHeartbeat {
	if len(h.Processes) <= fewProcesses {
		return h
	}
	// each time the same ones
	all := slices.SortedFunc(slices.Values(h.Processes),
		func(a, b api.ProcessReport) int { return strings.Compare(a.Worker, b.Worker) })
	sizes, size := make([]int, len(all)), 0
	for i, p := range all {
		sizes[i] = jsonSize(p)
		size += sizes[i]
	}
	for i := len(all) - 1; i >= 0 && size > maxHeartbeat; i-- {
		all[i] = api.ProcessReport{Process: all[i].Process, Usage: all[i].Usage}
		bare := jsonSize(all[i])
		size -= sizes[i] - bare
		sizes[i] = bare
	}
	for size > maxHeartbeat {
		last := len(all) - 1
		size -= sizes[last]
		all = all[:last]
	}
	h.Processes = all
	return h
}

// jsonSize is the size of a report in a list.
func jsonSize(p api.ProcessReport) int {
	text, err := json.Marshal(p)
	if err != nil {
		return maxHeartbeat // a number that JSON does not have: the report is sent without it
	}
	return len(text) + len(",")
}

// maxOpenFiles is how many files this process may have open; 0 is not known.
func maxOpenFiles() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int64(min(uint64(limit.Cur), math.MaxInt64))
}
