package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	gopsutil "github.com/shirou/gopsutil/v3/process"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// agent starts an agent in its own process; one that is doomed will be killed by the benchmark.
func (b *bench) agent(hostID string, doomed bool, args ...string) *exec.Cmd {
	cmd := exec.Command(b.tempool, append([]string{
		"agent", "--address", b.server.Address(), "--host-id", hostID, "--state-dir", filepath.Join(b.dir, hostID),
		"--listen", "",
	}, args...)...)
	b.launch(hostID, cmd, !doomed, terminate(cmd))
	return cmd
}

// terminate asks a program to exit.
func terminate(cmd *exec.Cmd) (quit func() error) {
	return func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has exited, which its exit code reports
		return nil
	}
}

// stopTimeout limits how long a program may take to exit.
const stopTimeout = 90 * time.Second

// launch starts a program whose output goes to a log file in the run's directory, unless cmd says otherwise. At the end
// of the current part quit asks it to exit. A failure of quit, a timeout and, if exitCounts, a failure exit are errors,
// with the program's last output.
func (b *bench) launch(name string, cmd *exec.Cmd, exitCounts bool, quit func() error) {
	log := must(os.Create(filepath.Join(b.dir, name+".log")))
	if cmd.Stderr = log; cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		_ = log.Close()
		check(fmt.Errorf("start %s (scripts/setup-bench-debian.sh installs what the benchmarks need): %w", name, err))
	}
	b.atEnd(func(context.Context) error {
		defer log.Close()
		force := time.AfterFunc(stopTimeout, func() { _ = cmd.Process.Kill() })
		failure := quit()
		if exited := cmd.Wait(); exitCounts {
			failure = errors.Join(failure, exited)
		}
		if !force.Stop() {
			failure = errors.Join(failure, fmt.Errorf("did not exit within %s", stopTimeout))
		}
		if failure == nil {
			return nil
		}
		content, _ := os.ReadFile(log.Name()) // best effort
		return fmt.Errorf("stop %s: %w:\n%s", name, failure, content[max(0, len(content)-4096):])
	})
}

// bareWorker is a worker program without Tempool.
type bareWorker struct {
	cmd  *exec.Cmd
	conn *wire.Conn
}

// spawnBare starts a pool's program with only its connection, and returns after its hello.
func spawnBare(ctx context.Context, s spec.Spec) (*bareWorker, error) {
	ours, theirs, err := launcher.SocketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	in, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	defer out.Close()
	h := &bareWorker{cmd: exec.Command(s.Pool.Command[0], s.Pool.Command[1:]...)}
	h.cmd.Dir = s.Pool.Dir
	h.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), process.EnvFD + "=3", process.EnvOut + "=4", process.EnvWorker +
		"=" + s.Pool.Name + "/0"}
	for name, value := range s.Pool.Env {
		h.cmd.Env = append(h.cmd.Env, name+"="+value)
	}
	h.cmd.ExtraFiles = []*os.File{theirs, out}
	if err := h.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("spawn %s: %w", s.Pool.Command[0], err), ours.Close(), in.Close())
	}
	h.conn = wire.NewFrames(in, ours, wire.Options{})
	if err := wire.AwaitReady(ctx, h.conn); err != nil {
		h.kill()
		return nil, fmt.Errorf("read the hello of process %d: %w", h.cmd.Process.Pid, err)
	}
	return h, nil
}

// kill ends the program.
func (h *bareWorker) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait() // always fails: it was killed
	_ = h.conn.Close()
}

// timeBare returns how many milliseconds the start of a pool's programs takes, one per core at a time, which is also an
// agent's default.
func timeBare(ctx context.Context, s spec.Spec) float64 {
	started, failures := make([]*bareWorker, s.Pool.Size), make([]error, s.Pool.Size)
	defer func() {
		for _, h := range started {
			if h != nil {
				h.kill()
			}
		}
	}()
	return timed(func() error {
		sleep.Each(len(started), runtime.NumCPU(), func(i int) { started[i], failures[i] = spawnBare(ctx, s) })
		return errors.Join(failures...)
	})
}

// cpuSeconds returns the processor time that a process has used.
func cpuSeconds(pid int) float64 {
	times := must(must(gopsutil.NewProcess(int32(pid))).Times())
	return times.User + times.System
}

// residentMB returns the RSS of a process in MB.
func residentMB(pid int) float64 {
	return float64(must(must(gopsutil.NewProcess(int32(pid))).MemoryInfo()).RSS) / 1e6
}

// pssMB returns the PSS of a process in MB, 0 if it has ended: its own memory, and its part of what it shares.
func pssMB(pid int) float64 {
	id, _ := tree.Identify(pid)
	bytes, _ := tree.PSSOf(id)
	return float64(bytes) / 1e6
}
