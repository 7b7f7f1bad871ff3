package dev

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"github.com/tempool/tempool/internal/sleep"
)

// errGoRunExited ends a run when its go run was killed: go run does not forward SIGTERM and would leave this program
// running.
var errGoRunExited = errors.New("the go run that started this program exited")

const goRunInterval = time.Second

// watchGoRun calls stop when this program was started by go run and that has exited. The returned function ends the
// watch.
func watchGoRun(stop context.CancelCauseFunc) func() {
	parent := os.Getppid()
	if !isGo(parent) {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for range sleep.Ticks(end, goRunInterval) {
			if os.Getppid() != parent {
				stop(errGoRunExited)
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// isGo reports whether a process is the go command; false if its name cannot be read.
func isGo(pid int) bool {
	parent, err := process.NewProcess(int32(pid))
	if err != nil {
		return false
	}
	name, err := parent.Name()
	return err == nil && name == "go"
}
