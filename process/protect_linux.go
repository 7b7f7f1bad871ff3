package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Protect hides the agent's secrets from the workers of its host: it clears the environment that /proc shows of this
// process, and forbids other processes of its user to read its memory. os.Getenv and the environments of children are
// unchanged. Call it once, early: a process may have read the environment before.
func Protect() error {
	if err := clearShownEnvironment(); err != nil {
		return fmt.Errorf("hide the agent's environment from workers: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the agent's memory from workers: %w", err)
	}
	return nil
}

// Fields of /proc/self/stat that hold where the environment begins and ends in memory, numbered as in proc_pid_stat(5).
const (
	envStartField = 50
	envEndField   = 51
)

// clearShownEnvironment overwrites the memory in which the kernel put the environment. Package os has copied it.
func clearShownEnvironment() error {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the first is field 3
	if len(fields) <= envEndField-3 {
		return errors.New("/proc/self/stat has no valid bounds of the environment")
	}
	start, startErr := strconv.ParseInt(string(fields[envStartField-3]), 10, 64)
	end, endErr := strconv.ParseInt(string(fields[envEndField-3]), 10, 64)
	if startErr != nil || endErr != nil || start <= 0 || end < start {
		return errors.New("/proc/self/stat has no valid bounds of the environment")
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(make([]byte, end-start), start)
	return errors.Join(err, memory.Close())
}
