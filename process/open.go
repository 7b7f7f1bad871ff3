package process

import (
	"cmp"
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/process/reaper"
	"github.com/tempool/tempool/process/tree"
)

// DefaultSampleEvery is the interval of periodic samples.
const DefaultSampleEvery = 10 * time.Second

// Config configures a Supervisor. StateDir and HostID have no default.
type Config struct {
	// StateDir is a directory of this host that only one Supervisor at a time can use. Open creates it if it is missing.
	StateDir string
	HostID   string
	// Logger gets the events of the subprocesses. Default: slog.Default().
	Logger *slog.Logger
	// SampleEvery is the interval of periodic samples. Default: DefaultSampleEvery.
	SampleEvery time.Duration
	// EnforceEvery is the interval at which limits of the mechanism "sampler" are checked. Default: DefaultEnforceEvery.
	EnforceEvery time.Duration
	// LogBytes bounds the log of each worker on disk, and TotalLogBytes all of them; see logs.Config. Default: 8 MiB, and
	// no bound.
	LogBytes, TotalLogBytes int64
	// HostCall answers the host calls of subprocesses. It is called concurrently and must honour ctx. Default: reject
	// all.
	HostCall func(ctx context.Context, call HostCall) ([]byte, error)

	// Functions are what pools of kind "function" can run here, by name.
	Functions map[string]Function

	// TakeOver takes over the processes that the supervisor before has handed over. Without it they are killed.
	TakeOver bool

	cgroupFS  func() (limits.CgroupFS, error) // default: limits.HostCgroupFS
	fork      func(*exec.Cmd) error           // default: tree.StartChild
	keepFor   time.Duration                   // default: KeepFor
	killLimit time.Duration                   // default: killLimit
}

// Open locks the state directory, becomes a child subreaper, kills what an earlier Supervisor on the directory left
// running, and starts the reaper. It fails with CodeUnavailable and the holder's PID while another process holds the
// directory.
func Open(ctx context.Context, config Config) (*Supervisor, error) {
	if config.StateDir == "" || config.HostID == "" || strings.ContainsAny(config.HostID, "\x00\n") {
		return nil, coded(CodeInvalid, nil, "a supervisor needs a state directory and a host id of one line")
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	config.SampleEvery = cmp.Or(max(config.SampleEvery, 0), DefaultSampleEvery)
	config.EnforceEvery = cmp.Or(max(config.EnforceEvery, 0), DefaultEnforceEvery)
	config.keepFor = cmp.Or(max(config.keepFor, 0), KeepFor)
	config.killLimit = cmp.Or(config.killLimit, killLimit)
	if config.fork == nil {
		config.fork = tree.StartChild
	}
	if config.cgroupFS == nil {
		config.cgroupFS = limits.HostCgroupFS
	}
	state, err := openStateDir(config.StateDir, config.HostID)
	if err != nil {
		return nil, err
	}
	s := &Supervisor{
		config: config, logger: config.Logger, state: state, closed: make(chan struct{}),
		starting: make(map[key]*start), live: make(map[key]*Process),
		ended: make(map[key]*Process), templateProcesses: make(map[key]*Process),
		eras: make(map[string]*eraAnswer), abandoned: make(map[string]int),
		ports: portAllocator{inUse: make(map[int]bool)},
	}
	if s.logs, err = logs.Open(logs.Config{
		Dir: filepath.Join(state.path, logsName), WorkerBytes: config.LogBytes, TotalBytes: config.TotalLogBytes,
		Logger: config.Logger,
	}); err != nil {
		state.close()
		return nil, coded(CodeInvalid, err, "use another state directory or fix its permissions")
	}
	if err := s.start(ctx); err != nil {
		s.logs.Close()
		state.close()
		return nil, err
	}
	return s, nil
}

func (s *Supervisor) start(ctx context.Context) error {
	if !tree.HasMarks() {
		s.logger.Info("this system cannot mark processes; descendants of workers are found by their session, parents and " +
			"environment")
	}
	if err := tree.BecomeSubreaper(); err != nil {
		s.logger.Warn("cannot adopt orphaned descendants", "error", err)
	}
	s.setUpCgroups() // before the first child, which starts in the agent's cgroup
	taken, records := s.takeOver(ctx)
	survivors, err := s.state.sweep(s.config.HostID, s.logger, records)
	if err != nil {
		taken.Abort()
		return coded(CodeUnavailable, err, "kill what an earlier agent left running")
	}
	if err := s.sweepContainers(); err != nil {
		s.logger.Error("cannot remove the containers of an earlier agent", "error", err)
	}
	var keptCgroups []string
	for _, r := range records {
		keptCgroups = append(keptCgroups, r.Key.Cgroup)
	}
	s.cgroups.Sweep(s.logger, keptCgroups...)
	if s.reaper, err = reaper.Start(ctx, s.config.HostID, s.logger); err != nil {
		taken.Abort()
		return err
	}
	for _, r := range records {
		s.reaper.Watch(r.Key)
	}
	for _, key := range survivors {
		s.reaper.Watch(key)
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.resume(taken, records); err != nil {
		s.logger.Warn("cannot stop the keeper of the processes that were taken over; it will kill them", "error", err)
	}
	s.loops.Go(func() { tree.ReapOrphans(s.ctx, s.logger) })
	s.loops.Go(func() { s.escapeLoop(s.ctx) })
	s.loops.Go(func() { s.sampleLoop(s.ctx) })
	s.loops.Go(func() { s.enforceLoop(s.ctx) })
	return nil
}

// setUpCgroups finds out whether cgroups can be used, and opens them.
func (s *Supervisor) setUpCgroups() {
	s.host = limits.DetectHost()
	cgroups, err := s.openCgroups()
	if err != nil {
		s.noCgroups = err.Error()
		s.logger.Info("cgroups unavailable; enforcing limits of memory, CPU and processes by sampling",
			"every", s.config.EnforceEvery, "reason", err)
		return
	}
	s.cgroups, s.host.Controllers, s.noCgroups = cgroups, cgroups.Controllers, cgroups.Withheld
	if s.noCgroups != "" {
		s.logger.Info("enforcing limits of memory, CPU and processes by sampling", "every", s.config.EnforceEvery,
			"reason", s.noCgroups)
	}
}

func (s *Supervisor) openCgroups() (*limits.Cgroups, error) {
	fs, err := s.config.cgroupFS()
	if err != nil {
		return nil, err
	}
	cgroups, err := limits.OpenCgroups(fs, s.state.id, s.config.TakeOver)
	if err != nil {
		return nil, err
	}
	self, err := tree.SelfPath()
	if err == nil { // a launcher without a request, which exits at once
		noop := &exec.Cmd{Path: self, Args: []string{launcher.Name}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
		err = cgroups.Probe(noop)
	}
	if err != nil {
		cgroups.Close()
		return nil, err
	}
	return cgroups, nil
}
