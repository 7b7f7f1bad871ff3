// Package worker implements the agent: the daemon on each host that runs workflows and activities, owns the host's
// subprocesses and serves the gateway.
package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows"
)

// Config configures an agent.
type Config struct {
	// Address and Namespace of Temporal. Default: from the environment and the profile, see tempool.Options.
	Address, Namespace string
	// Payloads say how what Temporal stores is encoded. An agent uses no codec server: while one does not answer,
	// workflows would fail.
	Payloads tempool.Payloads
	// HostID names the host; no two live agents may share one. Default: the host name.
	HostID string
	// OtherHostID ends the error "…; stop it, or" of an agent whose host id is taken. Default: "start this one with
	// another --host-id".
	OtherHostID string
	// Deployment is the version of this agent's workflow code, if it takes part in Worker Deployment Versioning.
	Deployment Deployment
	// Labels are the placement labels of this host. Default: "default".
	Labels []string
	// Capacity is the number of processes the host may run. Default: DefaultCapacity.
	Capacity int
	// StateDir is a folder that only this agent uses. Default: tempool/<host id> in the user's state folder.
	StateDir string
	// LogBytes bounds the log of each worker in StateDir. Default: logs.DefaultWorkerBytes; the least is
	// logs.MinWorkerBytes. The logs of all workers together take at most Capacity times that, and the oldest of workers
	// that have left the host go first.
	LogBytes int64
	// Listen is the gateway's TCP address. With "", the gateway listens on the Unix socket in StateDir only.
	Listen string
	// Security protects the gateway's TCP listener and its Unix socket; other addresses than loopback need it.
	Security gateway.Security
	// Limits of the gateway's listeners. Default: those of the gateway.
	Limits gateway.Limits
	// TemporalUI is the base URL of the Temporal Web UI, to which the dashboard links. Default: no links.
	TemporalUI string
	// Webhook is where the agent posts its events. Default: nowhere.
	Webhook events.WebhookConfig
	// KeepProcesses hands the ready processes to the next agent of this host id and state folder when this one stops, and
	// takes over those of the agent before. Linux only.
	KeepProcesses bool
	Logger        *slog.Logger
	// Tracer makes the agent's spans, and its owner exports them. Default: as the OTEL_ variables say, which is none
	// unless they name a collector.
	Tracer trace.Tracer
	// StopTimeout bounds a graceful stop; processes that still run then are killed. Default: DefaultStopTimeout.
	StopTimeout time.Duration
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

// Check reports what is wrong with a configuration, without starting anything.
func (c Config) Check() error { return c.complete() }

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
		return fmt.Errorf("invalid --host-id %q; allowed: 1 to 128 letters, digits, '.', '_' and '-', the first a letter "+
			"or digit, for example web-1", c.HostID)
	}
	var err error
	if c.Payloads, err = c.Payloads.WithDefaults(); err != nil {
		return err
	}
	if c.Payloads.CodecEndpoint != "" && c.Payloads.Converter == nil {
		return api.Errorf(api.CodeInvalid,
			"an agent cannot use a codec server, because workflows would fail while it is unreachable; give the agent the "+
				"keys with --payload-keys")
	}
	payloads, err := c.Payloads.DataConverter(c.Namespace)
	if err != nil {
		return err
	}
	c.Payloads.Converter = workflows.KeepRuns(payloads)
	if err := c.Deployment.complete(); err != nil {
		return err
	}
	c.OtherHostID = cmp.Or(c.OtherHostID, "start this one with another --host-id")
	if len(c.Labels) == 0 {
		c.Labels = []string{"default"}
	}
	for _, label := range c.Labels {
		if !spec.ValidLabel(label) {
			return api.Errorf(api.CodeInvalid,
				"--labels has %q, which no pool can have as its placement; allowed: 1 to 63 characters of a-z, 0-9, _ and -, "+
					"the first a letter or digit", label)
		}
	}
	c.Capacity = cmp.Or(c.Capacity, DefaultCapacity)
	if c.Capacity < 0 {
		return fmt.Errorf("invalid --capacity %d; allowed: 1 or more, for example 100", c.Capacity)
	}
	if c.LogBytes = cmp.Or(c.LogBytes, logs.DefaultWorkerBytes); c.LogBytes < logs.MinWorkerBytes {
		return fmt.Errorf("invalid --log-size %s; allowed: %s or more", spec.Bytes(c.LogBytes),
			spec.Bytes(logs.MinWorkerBytes))
	}
	if c.StateDir == "" {
		folder, err := stateHome()
		if err != nil {
			return fmt.Errorf("cannot find a state folder; set --state-dir: %w", err)
		}
		c.StateDir = filepath.Join(folder, "tempool", c.HostID)
	}
	if c.KeepProcesses {
		if err := process.CanKeep(c.StateDir); err != nil {
			return fmt.Errorf("--keep-processes cannot work here: %w", err)
		}
	}
	if u, err := url.Parse(c.TemporalUI); c.TemporalUI != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
		return api.Errorf(api.CodeInvalid,
			"--temporal-ui is %q; write the base URL of the Temporal Web UI, such as https://temporal.example.com",
			redact.URLs(c.TemporalUI))
	}
	if err := gateway.CheckSecurity(c.Listen, c.Security); err != nil {
		return err
	}
	if err := c.Webhook.Check(); err != nil {
		return err
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.MemoryRoot = cmp.Or(c.MemoryRoot, "/")
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
