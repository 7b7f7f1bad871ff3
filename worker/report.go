package worker

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v3/disk"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/buildinfo"
)

// newReport is what does not change while the agent runs.
func (a *Agent) newReport() *api.AgentReport {
	r := &api.AgentReport{
		Endpoint: a.gateway.Endpoint(), Access: api.AccessOpen, Version: buildinfo.Read().String(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
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
	heartbeat.Waiting = a.gateway.Waiting()
	if r := a.report.Load(); r != nil {
		report := *r
		report.Clock, report.Epoch = time.Now().UTC(), a.membership.epoch()
		if usage, err := disk.Usage(a.config.StateDir); err == nil {
			report.DiskFreeBytes, report.DiskTotalBytes = int64(usage.Free), int64(usage.Total)
		}
		heartbeat.Agent = &report
	}
	return heartbeat
}
