// Package agentcmd is the command line of the agent.
package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/internal/logging"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// Exit codes of the agent.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a mistake in how the command was called.
type usageError struct{ error }

// Main runs the agent until TERM or INT and returns its exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := New()
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "worker: %v\nRun 'worker --help' for what it takes.\n", err)
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "worker: %v\n", err)
	return exitFailed
}

// New is the agent's command.
func New() *cobra.Command {
	var config worker.Config
	var verbose bool
	command := &cobra.Command{
		Use:   "worker",
		Short: "Run Tempool's agent on this host",
		Long: `Run Tempool's agent: it hosts the processes of pools, runs their workflows, and carries calls to them.

Temporal is found by --address and --namespace, else by TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the other standard
environment and profile settings, else at localhost:7233. TERM and INT stop the agent in good order: it takes no new process,
lets calls in flight finish, and stops its processes; their workers are placed elsewhere.`,
		Example: `  worker
  worker --address temporal.example.com:7233 --namespace prod --host-id gpu-1 --labels default,gpu --capacity 16`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("it takes no argument, but got %q", args[0])}
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if config.Capacity < 1 {
				return usageError{fmt.Errorf("--capacity is %d; it must be at least 1", config.Capacity)}
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			config.Logger = logging.New(os.Stderr, level)
			return worker.Run(command.Context(), config)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := command.Flags()
	flags.StringVar(&config.Address, "address", "", "address of Temporal, HOST:PORT (default: TEMPORAL_ADDRESS, else localhost:7233)")
	flags.StringVar(&config.Namespace, "namespace", "", "Temporal namespace (default: TEMPORAL_NAMESPACE, else \"default\")")
	flags.StringVar(&config.HostID, "host-id", "", "name of this host; one live agent each (default: the host's name)")
	flags.StringSliceVar(&config.Labels, "labels", nil, "placement labels of pools this host takes workers for (default \"default\")")
	flags.IntVar(&config.Capacity, "capacity", worker.DefaultCapacity, "how many processes this host may run")
	flags.StringVar(&config.StateDir, "state-dir", "", "folder of this agent's own (default: tempool/HOST-ID in the user's state folder)")
	flags.StringVar(&config.Listen, "listen", worker.DefaultListen, "TCP address of the gateway; empty for none, the Unix socket in the state folder is always there")
	flags.IntVar(&config.Limits.Connections, "max-connections", gateway.DefaultConnections, "connections at one time, of each of the gateway's listeners; further ones wait")
	flags.TextVar((*spec.Bytes)(&config.Limits.BodyBytes), "body-memory", spec.Bytes(gateway.DefaultBodyBytes), "memory that the bodies of calls over HTTP may take, all together; further ones wait")
	flags.StringVar(&config.MemoryRoot, "memory-root", "", "folder below which proc and sys tell of this host's memory, for tests (default: /)")
	_ = flags.MarkHidden("memory-root") // it is there
	flags.BoolVar(&verbose, "verbose", false, "log more")
	return command
}
