package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// stopTimeout limits how long a program may take to exit.
const stopTimeout = 90 * time.Second

// launch starts a program whose output goes to a log file in the run's directory, unless cmd says otherwise. At the end
// of the benchmark quit asks it to exit. A failure of quit, a timeout and, if exitCounts, a failure exit are errors,
// with the program's last output.
func (b *bench) launch(name string, cmd *exec.Cmd, exitCounts bool, quit func() error) error {
	log, err := os.Create(filepath.Join(b.dir, name+".log"))
	if err != nil {
		return fmt.Errorf("create the log of %s: %w", name, err)
	}
	if cmd.Stderr = log; cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		_ = log.Close()
		return fmt.Errorf("start %s (scripts/setup-bench-debian.sh installs what the benchmarks need): %w", name, err)
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
	return nil
}
