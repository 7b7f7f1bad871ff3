// Package worker implements the agent: the daemon on each host that runs workflows and activities, owns the host's subprocesses and
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

	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway"
)

// Config configures an agent.
type Config struct {
	// Address and Namespace of Temporal. Default: from the environment and the profile, see tempool.Options.
	Address, Namespace string
	// HostID names the host; no two live agents may share one. Default: the host name.
	HostID string
	// OtherHostID ends the error "…; stop it, or" of an agent whose host id is taken. Default: "start this one with another --host-id".
	OtherHostID string
	// Deployment is the version of this agent's workflow code, if it takes part in Worker Deployment Versioning.
	Deployment Deployment
	// Labels are the placement labels of this host. Default: "default".
	Labels []string
	// Capacity is the number of processes the host may run. Default: DefaultCapacity.
	Capacity int
	// StateDir is a folder that only this agent uses. Default: tempool/<host id> in the user's state folder.
	StateDir string
	// Listen is the gateway's TCP address. With "", the gateway listens on the Unix socket in StateDir only.
	Listen string
	// Security protects the gateway's TCP listener and its Unix socket; other addresses than loopback need it.
	Security gateway.Security
	// Limits of the gateway's listeners. Default: those of the gateway.
	Limits gateway.Limits
	// Webhook is where the agent posts its events. Default: nowhere.
	Webhook events.WebhookConfig
	Logger  *slog.Logger
	// StopTimeout bounds a graceful stop; processes that still run then are killed. Default: DefaultStopTimeout.
	StopTimeout time.Duration
	// HostMemory reads this host's memory; tests replace it. Default: from the operating system.
	HostMemory func() (HostMemory, error)
	// MemoryRoot is the folder that contains the proc and sys to read the memory from, for tests on Linux. Default: "/".
	MemoryRoot string
}

// Defaults of Config.
const (
	DefaultCapacity    = 100
	DefaultListen      = "127.0.0.1:7460"
	DefaultStopTimeout = 60 * time.Second
	SocketName         = "gateway.sock"
)

var hostID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// complete sets defaults and validates the rest.
func (c *Config) complete() error {
	if c.HostID == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("cannot read the host name; set --host-id: %w", err)
		}
		c.HostID = name
	}
	if !hostID.MatchString(c.HostID) {
		return fmt.Errorf("invalid --host-id %q; allowed: 1 to 128 letters, digits, '.', '_' and '-', the first a letter or digit, for example web-1", c.HostID)
	}
	if err := c.Deployment.complete(); err != nil {
		return err
	}
	c.OtherHostID = cmp.Or(c.OtherHostID, "start this one with another --host-id")
	if len(c.Labels) == 0 {
		c.Labels = []string{"default"}
	}
	c.Capacity = cmp.Or(c.Capacity, DefaultCapacity)
	if c.Capacity < 0 {
		return fmt.Errorf("invalid --capacity %d; allowed: 1 or more, for example 100", c.Capacity)
	}
	if c.StateDir == "" {
		folder, err := stateHome()
		if err != nil {
			return fmt.Errorf("cannot find a state folder; set --state-dir: %w", err)
		}
		c.StateDir = filepath.Join(folder, "tempool", c.HostID)
	}
	if err := gateway.CheckSecurity(c.Listen, c.Security); err != nil {
		return err
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	if c.HostMemory == nil {
		root := cmp.Or(c.MemoryRoot, "/")
		c.HostMemory = func() (HostMemory, error) { return readHostMemory(root) }
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
