package starter

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/shirou/gopsutil/v3/process"
)

// errGoRunGone ends everything when `go run` was killed: it passes no TERM on, and would leave this program behind.
var errGoRunGone = errors.New("the go run that started this was ended")

const goRunLook = time.Second

// watchGoRun calls stop when this program was started by `go run` and that has ended. The function it returns ends the watch.
func watchGoRun(stop context.CancelCauseFunc) func() {
	parent := os.Getppid()
	if !isGo(parent) {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(goRunLook)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
				if os.Getppid() != parent {
					stop(errGoRunGone)
					return
				}
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// isGo reports whether a process is the go command. One that cannot be looked at is not.
func isGo(pid int) bool {
	looked, err := process.NewProcess(int32(pid))
	if err != nil {
		return false
	}
	name, err := looked.Name()
	return err == nil && name == "go"
}
