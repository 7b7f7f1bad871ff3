package cli

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/dev"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/internal/logging"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

func (a *app) agentCommand() *cobra.Command {
	var config worker.Config
	var file string
	var check, printConfig bool
	logLevel := "info"
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of this host",
		Long: `Run Tempool's agent: it hosts the processes of pools, runs their workflows, and forwards calls to them.
One agent runs on each host.

The agent uses the Temporal server at --address and --namespace, else the one in TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE
and the other standard environment and profile settings, else localhost:7233.

The gateway serves this host only, unless --listen names another address: then it needs --tls-cert and --tls-key, and
--tokens or --client-ca.

Each flag can also be set in the environment, as in TEMPOOL_TLS_CERT, and in the file of --config, as in tls_cert =
"gw.pem". A flag wins over the environment, and the environment over the file. --print-config shows what is in force,
and from where.

SIGTERM and SIGINT stop the agent gracefully: it accepts no new process, waits for calls in flight, and stops its
processes. Other hosts then start the workers again. With --keep-processes the next agent of this host takes the
processes over. SIGHUP reads log_level from the file again; tokens and certificates are read within a second of a
change without it.`,
		Example: `  tempool agent
  tempool agent --address temporal.example.com:7233 --host-id gpu-1 --labels gpu --capacity 16
  tempool agent --config /etc/tempool/agent.toml --check
  tempool agent --listen 10.0.0.5:7460 --tls-cert gw.pem --tls-key gw.key --tokens tokens.toml`,
	}
	flags := c.Flags()
	flags.StringVar(&config.HostID, "host-id", "", "ID of this host, for one agent at a time (default: the host's name)")
	flags.StringVar(&config.Deployment.Name, "deployment", "",
		"Worker Deployment of this agent's workflow code; needs --build-id (default: none)")
	flags.StringVar(&config.Deployment.BuildID, "build-id", "", "version of this agent's workflow code in its deployment")
	flags.StringSliceVar(&config.Labels, "labels", nil,
		"placement labels of the pools whose workers this host accepts (default \"default\")")
	flags.IntVar(&config.Capacity, "capacity", worker.DefaultCapacity, "maximum number of processes on this host")
	flags.StringVar(&config.StateDir, "state-dir", "",
		"state folder, not shared with another agent (default: tempool/HOST-ID in the user's state folder)")
	flags.TextVar((*spec.Bytes)(&config.LogBytes), "log-size", spec.Bytes(logs.DefaultWorkerBytes),
		"maximum size of the log of each worker in the state folder, for tempool logs")
	flags.StringVar(&config.Listen, "listen", worker.DefaultListen,
		"TCP address of the gateway; empty for none (the gateway always listens on the Unix socket in the state folder)")
	flags.BoolVar(&config.KeepProcesses, "keep-processes", false,
		"when this agent stops, keep its processes for 2 minutes for the next one with the same host id and state folder; "+
			"and take over those of the previous one (Linux)")
	securityFlags(c, &config.Security)
	flags.IntVar(&config.Limits.Connections, "max-connections", gateway.DefaultConnections,
		"maximum number of connections of each of the gateway's listeners; further ones wait")
	flags.IntVar(&config.Limits.ClientConnections, "max-client-connections", 0,
		"maximum number of connections of one token, certificate or address (default: half of --max-connections); further "+
			"ones are closed")
	flags.TextVar((*spec.Bytes)(&config.Limits.BodyBytes), "body-memory", spec.Bytes(gateway.DefaultBodyBytes),
		"maximum memory for the bodies of all HTTP calls; further calls wait")
	flags.StringVar(&config.TemporalUI, "temporal-ui", "",
		"base URL of the Temporal Web UI, to which the dashboard links (default: no links)")
	flags.StringVar(&config.Webhook.URL, "events-webhook", "",
		"URL to which the agent posts its events, in batches of CloudEvents (default: none)")
	flags.StringVar(&config.Webhook.Types, "events-webhook-types", "",
		"types of the events to post, such as 'worker.*,process.ended' (default: all)")
	flags.StringVar(&config.Webhook.TokenFile, "events-webhook-token-file", "",
		"file with a bearer token for --events-webhook")
	flags.StringVar(&config.MemoryRoot, "memory-root", "",
		"folder with proc and sys to read this host's memory from, for tests (default: /)")
	_ = flags.MarkHidden("memory-root") // the flag exists
	levels := []string{"debug", "info", "warn", "error"}
	flags.Var(choice[string]{&logLevel, levels}, "log-level", "least important lines to log")
	completeFlag(c, "log-level", levels...)
	s := settingsOf(c, "address", "namespace", "payload-keys")
	flags.StringVar(&file, "config", "", "file with settings, an agent.toml (default: $TEMPOOL_CONFIG, else none)")
	mustDefine(c, c.MarkFlagFilename("config", "toml"))
	flags.BoolVar(&check, "check", false, "check the settings and exit")
	flags.BoolVar(&printConfig, "print-config", false, "print the settings in force, each with where it comes from, "+
		"and exit")
	return a.daemonCommand(c, s, func(ctx context.Context) error {
		if file = cmp.Or(file, os.Getenv("TEMPOOL_CONFIG")); file != "" {
			if err := s.fromFile(file); err != nil {
				return api.Errorf(api.CodeInvalid, "%w", err)
			}
		}
		for _, limit := range []struct {
			flag      string
			tooLow    bool
			is, least any
		}{
			{"capacity", config.Capacity < 1, config.Capacity, 1},
			{"log-size", config.LogBytes < logs.MinWorkerBytes, spec.Bytes(config.LogBytes), spec.Bytes(logs.MinWorkerBytes)},
			{"max-connections", config.Limits.Connections < 1, config.Limits.Connections, 1},
			{"max-client-connections", config.Limits.ClientConnections < 0, config.Limits.ClientConnections, 0},
			{"body-memory", config.Limits.BodyBytes < 1, spec.Bytes(config.Limits.BodyBytes), spec.Bytes(1)},
		} {
			if limit.tooLow {
				return usagef("--%s is %v; it must be at least %v", limit.flag, limit.is, limit.least)
			}
		}
		config.Address, config.Namespace, config.Payloads = a.options.Address, a.options.Namespace, a.options.Payloads
		switch {
		case check:
			if err := config.Check(); err != nil {
				return err
			}
			return a.printMessage(s.inForce(), "the settings are valid")
		case printConfig:
			all := s.inForce()
			return a.printResult(all, func(text *strings.Builder) { writeSettings(text, all) })
		}
		var level slog.LevelVar
		_ = level.UnmarshalText([]byte(logLevel)) // choice allows no other
		config.Logger = logging.New(a.err, &level)
		defer dev.OnSignal(func() {
			if file == "" {
				return
			}
			if err := s.fromFile(file, "log-level"); err != nil {
				config.Logger.Error("the settings could not be read again", "error", err)
				return
			}
			_ = level.UnmarshalText([]byte(logLevel))
			config.Logger.Info("read the settings again", "log_level", logLevel)
		}, syscall.SIGHUP)()
		if err := process.Protect(); err != nil {
			config.Logger.Warn("workers may be able to read the agent's secrets", "error", err)
		}
		return worker.Run(ctx, config)
	})
}

// securityFlags defines the flags of commands that start an agent which protect its gateway.
func securityFlags(c *cobra.Command, s *gateway.Security) {
	flags := c.Flags()
	flags.StringVar(&s.Advertise, "advertise", "",
		"base URL of the gateway for clients, such as https://web-1:7460 (default: the address of --listen)")
	flags.StringVar(&s.CertFile, "tls-cert", "", "PEM file with the gateway's certificate; with --tls-key it enables TLS")
	flags.StringVar(&s.KeyFile, "tls-key", "", "PEM file with the certificate's private key")
	flags.StringVar(&s.ClientCAFile, "client-ca", "",
		"PEM file with the CA certificates for clients; every client then needs a certificate")
	flags.StringVar(&s.TokensFile, "tokens", "", "file with the tokens that clients need over TCP; tempool token "+
		"writes it")
	flags.StringVar(&s.PeerTokenFile, "peer-token", "",
		"file with a secret, the same on all hosts, by which their gateways know each other (or use --client-ca)")
	flags.StringVar(&s.SocketGroup, "socket-group", "",
		"group whose members may call, lease and read over the Unix socket (default: only the agent's user may open it)")
}

// daemonCommand makes c run until it is stopped. What the command line leaves open of its settings comes from
// the environment.
func (a *app) daemonCommand(c *cobra.Command, s *settings, run func(ctx context.Context) error) *cobra.Command {
	checkFlags(c, func(c *cobra.Command) error {
		if c.Flags().Changed("timeout") {
			return usagef("%s runs until it is stopped; --timeout is for single requests", c.CommandPath())
		}
		return s.fromEnvironment(c)
	})
	return a.localCommand(c, func(ctx context.Context, _ []string) error { return run(ctx) })
}
