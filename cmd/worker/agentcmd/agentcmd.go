// Package agentcmd is the agent's command line.
package agentcmd

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/cmd/internal/gatewayflags"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/internal/command"
	"github.com/tempool/tempool/internal/logging"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/logs"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// Main runs the agent until SIGTERM or SIGINT and returns its exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return command.Execute(ctx, newCommand(), args)
}

func newCommand() *cobra.Command {
	var config worker.Config
	var verbose bool
	agent := &cobra.Command{
		Use:   "worker",
		Short: "Run Tempool's agent on this host",
		Long: `Run Tempool's agent: it hosts the processes of pools, runs their workflows, and forwards calls to them.

The agent uses the Temporal server at --address and --namespace, else the one in TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the
other standard environment and profile settings, else localhost:7233.

The gateway serves this host only, unless --listen names another address: then it needs --tls-cert and --tls-key, and --tokens or
--client-ca. TEMPOOL_LISTEN, TEMPOOL_ADVERTISE, TEMPOOL_TLS_CERT and so on stand for these flags. SIGTERM and SIGINT stop the agent gracefully: it accepts
no new process, waits for calls in flight, and stops its processes. Other hosts then start the workers again. With --keep-processes the next agent
of this host takes the processes over.`,
		Example: `  worker
  worker --address temporal.example.com:7233 --namespace prod --host-id gpu-1 --labels default,gpu --capacity 16
  worker --listen 10.0.0.5:7460 --tls-cert gw.pem --tls-key gw.key --tokens tokens.toml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := gatewayflags.FromEnvironment(cmd); err != nil {
				return err
			}
			if err := command.FromEnvironment(cmd, "events-webhook", "events-webhook-types", "events-webhook-token-file",
				"temporal-ui"); err != nil {
				return err
			}
			if config.Capacity < 1 {
				return command.Usagef("--capacity is %d; it must be at least 1", config.Capacity)
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			config.Logger = logging.New(os.Stderr, level)
			if err := process.Protect(); err != nil {
				config.Logger.Warn("workers may be able to read the agent's secrets", "error", err)
			}
			return worker.Run(cmd.Context(), config)
		},
	}
	flags := agent.Flags()
	flags.StringVar(&config.Address, "address", "",
		"Temporal server, HOST:PORT (default: TEMPORAL_ADDRESS, else localhost:7233)")
	flags.StringVar(&config.Namespace, "namespace", "",
		"Temporal namespace (default: TEMPORAL_NAMESPACE, else \"default\")")
	flags.StringVar(&config.Payloads.KeyFile, "payload-keys", "",
		"file with the keys that encrypt what Temporal stores (default: TEMPOOL_PAYLOAD_KEYS, else nothing is encrypted)")
	flags.StringVar(&config.HostID, "host-id", "", "ID of this host, for one agent at a time (default: the host's name)")
	flags.StringVar(&config.Deployment.Name, "deployment", "",
		"Worker Deployment of this agent's workflow code; needs --build-id (default: TEMPOOL_DEPLOYMENT, else none)")
	flags.StringVar(&config.Deployment.BuildID, "build-id", "",
		"version of this agent's workflow code in its deployment (default: TEMPOOL_BUILD_ID)")
	flags.StringSliceVar(&config.Labels, "labels", nil,
		"placement labels of the pools whose workers this host accepts (default \"default\")")
	flags.IntVar(&config.Capacity, "capacity", worker.DefaultCapacity, "maximum number of processes on this host")
	flags.StringVar(&config.StateDir, "state-dir", "",
		"state folder, not shared with another agent (default: tempool/HOST-ID in the user's state folder)")
	flags.TextVar((*spec.Bytes)(&config.LogBytes), "log-size", spec.Bytes(logs.DefaultWorkerBytes),
		"maximum size of the log of each worker in the state folder, for ctl logs")
	flags.StringVar(&config.Listen, "listen", worker.DefaultListen,
		"TCP address of the gateway; empty for none (the gateway always listens on the Unix socket in the state folder)")
	flags.BoolVar(&config.KeepProcesses, "keep-processes", false,
		"when this agent stops, keep its processes for 2 minutes for the next one with the same host id and state folder; "+
			"and take over those of the previous one (Linux)")
	gatewayflags.Security(agent, &config.Security)
	flags.IntVar(&config.Limits.Connections, "max-connections", gateway.DefaultConnections,
		"maximum number of connections of each of the gateway's listeners; further ones wait")
	flags.IntVar(&config.Limits.ClientConnections, "max-client-connections", 0,
		"maximum number of connections of one token, certificate or address (default: half of --max-connections); further "+
			"ones are closed")
	flags.TextVar((*spec.Bytes)(&config.Limits.BodyBytes), "body-memory", spec.Bytes(gateway.DefaultBodyBytes),
		"maximum memory for the bodies of all HTTP calls; further calls wait")
	flags.StringVar(&config.TemporalUI, "temporal-ui", "",
		"base URL of the Temporal Web UI, to which the dashboard links (default: TEMPOOL_TEMPORAL_UI, else no links)")
	flags.StringVar(&config.Webhook.URL, "events-webhook", "",
		"URL to which the agent posts its events, in batches of CloudEvents (default: TEMPOOL_EVENTS_WEBHOOK, else none)")
	flags.StringVar(&config.Webhook.Types, "events-webhook-types", "",
		"types of the events to post, such as 'worker.*,process.ended' (default: all)")
	flags.StringVar(&config.Webhook.TokenFile, "events-webhook-token-file", "",
		"file with a bearer token for --events-webhook")
	flags.StringVar(&config.MemoryRoot, "memory-root", "",
		"folder with proc and sys to read this host's memory from, for tests (default: /)")
	_ = flags.MarkHidden("memory-root") // the flag exists
	flags.BoolVar(&verbose, "verbose", false, "log at level debug")
	return agent
}
