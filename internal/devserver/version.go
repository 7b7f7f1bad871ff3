package devserver

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Version is the release of the temporal command line that Binary installs: the newest without replace directives,
// which another module cannot use.
const Version = "v1.5.1"

// Driver is the release of the SQLite driver in a program that Binary builds. Version's own, which the downloaded
// program has, can leave a statement open when a caller gives up; see errInterrupted.
const Driver = "v1.62.0"

// installed names the installation of both in the cache.
const installed = Version + "-sqlite-" + Driver

// The oldest server that enables updates with validators by default.
const (
	oldestMajor = 1
	oldestMinor = 25
)

// checkVersion returns an error unless the program at path is a temporal command line with a server that Tempool can
// use.
func checkVersion(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = environment()
	cmd.WaitDelay = time.Second
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", path, err)
	}
	_, version, found := strings.Cut(string(output), "Server ")
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); !found || n < 2 {
		return fmt.Errorf("%s --version does not name a Temporal server: %q", path, strings.TrimSpace(string(output)))
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return fmt.Errorf("its Temporal server %d.%d is older than %d.%d", major, minor, oldestMajor, oldestMinor)
	}
	return nil
}
