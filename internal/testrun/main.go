// Command testrun runs go test with its arguments, shows which package has passed and what a failed test printed, and
// ends with one line: how many tests passed, failed and were skipped, and what the skipped ones need. It exits as go
// test does.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	slowest := flag.Int("slowest", 0, "how many of the slowest tests to list")
	flag.Parse()
	os.Exit(run(os.Stdout, *slowest, flag.Args()))
}

// run runs go test and returns its exit code.
func run(out io.Writer, slowest int, arguments []string) int {
	signal.Ignore(syscall.SIGINT) // go test, which gets it too, ends with its tests
	cmd := exec.Command("go", append([]string{"test", "-json"}, arguments...)...)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), "PATH="+pathWithPython())
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		return 1
	}
	began := time.Now()
	s := newSummary(out)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				s.add(e)
			} else {
				_, _ = out.Write(line)
			}
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	s.end(slowest, time.Since(began))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	case err != nil || len(s.failures) > 0:
		return 1
	}
	return 0
}

// pathWithPython is PATH with the folder of the real python3 first. The shim of a version manager, such as pyenv's,
// runs a shell at each start, which costs five times as much as Python's own, and the tests start it a thousand times.
func pathWithPython() string {
	path := os.Getenv("PATH")
	real, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return path // the tests say that it is missing
	}
	return filepath.Dir(strings.TrimSpace(string(real))) + string(os.PathListSeparator) + path
}
