package starter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// errGoRunGone ends everything when `go run` was killed: it passes no TERM on, and would leave this program behind.
var errGoRunGone = errors.New("the go run that started this was ended")

const goRunLook = time.Second

// watchGoRun calls stop when this program was started by `go run` and that has ended. The function it returns ends the watch.
func watchGoRun(stop context.CancelCauseFunc) func() {
	program, err := os.Executable()
	if err != nil || !byGoRun(program) {
		return func() {}
	}
	parent := os.Getppid()
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

// byGoRun reports whether a program lies where `go run` puts what it builds: …/go-build123/b001/exe/starter. What Go's cache holds
// lies elsewhere.
func byGoRun(program string) bool {
	folder := filepath.Dir(program)
	return filepath.Base(folder) == "exe" && strings.Contains(folder, string(filepath.Separator)+"go-build")
}
