// Package worker is the agent: the daemon on each host that runs workflows and activities, owns the host's subprocesses and
// serves the gateway.
package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tempool/tempool/gateway"
)

// Config says who an agent is and where it works.
type Config struct {
	// Address and Namespace find Temporal; empty ones are found by environment and profile, see tempool.Options.
	Address, Namespace string
	// HostID names the host; no two live agents share one. Default: the host's name.
	HostID string
	// OtherHostID completes the sentence "stop it, or …" of an agent whose host id is taken. Default: "start this one with another
	// --host-id".
	OtherHostID string
	// Labels are the placement labels this host takes workers for. Default: "default".
	Labels []string
	// Capacity is how many processes the host may run. Default: DefaultCapacity.
	Capacity int
	// StateDir is a folder of this agent's own. Default: tempool/<host id> below the user's state folder.
	StateDir string
	// Listen is the gateway's TCP address; "" listens on the Unix socket in StateDir only.
	Listen string
	// Limits of the gateway's listeners; the zero value has the gateway's defaults.
	Limits gateway.Limits
	Logger *slog.Logger
	// StopTimeout bounds a graceful stop; what still runs then is killed. Default: DefaultStopTimeout.
	StopTimeout time.Duration
	// HostMemory looks at this host's memory, for tests. Default: what the system tells.
	HostMemory func() (HostMemory, error)
	// MemoryRoot is the folder below which proc and sys are read for that, for tests of whole agents on Linux. Default: "/".
	MemoryRoot string
	// HostIDTimeout bounds how long a start waits for a former agent of this host id that may still live. Default: pollerRetention.
	HostIDTimeout time.Duration
}

// Defaults of Config.
const (
	DefaultCapacity    = 100
	DefaultListen      = "127.0.0.1:7460"
	DefaultStopTimeout = 60 * time.Second
	SocketName         = "gateway.sock"
)

var hostID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// complete fills in defaults and checks the rest.
func (c *Config) complete() error {
	if c.HostID == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("this host has no name (%w): give one with --host-id", err)
		}
		c.HostID = name
	}
	if !hostID.MatchString(c.HostID) {
		return fmt.Errorf("host id %q cannot be used: it may have letters, digits, '.', '_' and '-'; give another with --host-id", c.HostID)
	}
	if c.OtherHostID == "" {
		c.OtherHostID = "start this one with another --host-id"
	}
	if len(c.Labels) == 0 {
		c.Labels = []string{"default"}
	}
	if c.Capacity == 0 {
		c.Capacity = DefaultCapacity
	}
	if c.Capacity < 0 {
		return fmt.Errorf("--capacity is %d; it must be at least 1", c.Capacity)
	}
	if c.StateDir == "" {
		folder, err := stateHome()
		if err != nil {
			return fmt.Errorf("no state folder can be found (%w): give one with --state-dir", err)
		}
		c.StateDir = filepath.Join(folder, "tempool", c.HostID)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	if c.HostMemory == nil {
		root := cmp.Or(c.MemoryRoot, "/")
		c.HostMemory = func() (HostMemory, error) { return readHostMemory(root) }
	}
	if c.HostIDTimeout == 0 {
		c.HostIDTimeout = pollerRetention
	}
	return nil
}

func stateHome() (string, error) {
	if folder := os.Getenv("XDG_STATE_HOME"); folder != "" {
		return folder, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}
