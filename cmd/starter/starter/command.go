package starter

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/cmd/internal/gatewayflags"
	"github.com/tempool/tempool/internal/command"
)

// Main runs the starter and returns its exit code. SIGTERM, SIGINT and SIGHUP stop it gracefully; a second signal exits
// immediately.
func Main(args []string) int {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	defer watchSignals(stop, os.Stderr)()
	defer watchGoRun(stop)()
	return command.Execute(ctx, newCommand(os.Stdout, Run), args)
}

// watchSignals calls stop at the first signal and exits at the second; the workers' processes and the Temporal server
// are guarded and die with this process. The returned function ends the watch.
func watchSignals(stop context.CancelCauseFunc, out io.Writer) func() {
	signals := make(chan os.Signal, 2)
	kinds := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		kinds = append(kinds, syscall.SIGHUP)
	}
	signal.Notify(signals, kinds...)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for count := 0; ; count++ {
			select {
			case <-end:
				return
			case <-signals:
				if count > 0 {
					fmt.Fprintln(out, "\nExiting immediately.")
					os.Exit(1)
				}
				fmt.Fprintln(out, "\nStopping gracefully; press Ctrl-C again to exit immediately.")
				stop(errInterrupted)
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(end)
		<-ended
	}
}

// newCommand returns the starter's command, which calls run.
func newCommand(out io.Writer, run func(context.Context, Options) error) *cobra.Command {
	var o Options
	starter := &cobra.Command{
		Use:   "starter",
		Short: "Run a Temporal server, an agent, an example pool and its job on this machine",
		Long: `Run Tempool on this machine: the starter finds or starts a Temporal server, starts an agent and the example pool of four Python
processes, and measures the size and complexity of Python's standard library on them. Then everything keeps running until Ctrl-C.

The starter uses the Temporal server at --address; else the one in the standard settings (TEMPORAL_ADDRESS and others, in the
environment or a profile); else the one at localhost:7233; else it starts a development server with its database in the user's
cache folder. With --port, --ui-port or --fresh it always starts its own server.

Exit codes: 0 success; 1 failure; 2 wrong command line.`,
		Example: `  starter
  starter --once
  starter --address temporal.example.com:7233 --namespace demo
  starter --pool ./pool.toml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := cmd.Flags()
			if err := gatewayflags.FromEnvironment(cmd); err != nil {
				return err
			}
			if flags.Changed("listen") && o.Listen == "" {
				return command.Usagef("--listen is empty; use HOST:PORT")
			}
			for _, name := range []string{"port", "ui-port"} {
				if port, _ := flags.GetInt(name); flags.Changed(name) && (port < 1 || port > 65535) {
					return command.Usagef("--%s is %d; it must be from 1 to 65535", name, port)
				}
			}
			if flags.Changed("size") && (o.Size < 1 || o.Size > 1000) {
				return command.Usagef("--size is %d; it must be from 1 to 1000", o.Size)
			}
			if o.Address != "" && (o.Port != 0 || o.UIPort != 0 || o.Fresh) {
				return command.Usagef("--address uses a running server; --port, --ui-port and --fresh apply to the starter's own " +
					"server")
			}
			if o.Port != 0 && o.Port == o.UIPort {
				return command.Usagef("--port and --ui-port are both %d; they must differ", o.Port)
			}
			o.Out = out
			return run(cmd.Context(), o)
		},
	}
	starter.SetOut(out)
	flags := starter.Flags()
	flags.BoolVar(&o.Once, "once", false, "exit when the job is done")
	flags.StringVar(&o.Address, "address", "", "use the Temporal server at HOST:PORT")
	flags.StringVar(&o.Namespace, "namespace", "", `Temporal namespace (default: TEMPORAL_NAMESPACE, else "default")`)
	flags.StringVar(&o.PayloadKeys, "payload-keys", "",
		"file with the keys that encrypt what Temporal stores (default: TEMPOOL_PAYLOAD_KEYS, else nothing is encrypted)")
	flags.StringVar(&o.PoolFile, "pool", "",
		"pool file to start instead of the example; the job runs only on a pool named codemetrics")
	flags.IntVar(&o.Size, "size", 0, "number of workers (default: the size in the pool file)")
	flags.IntVar(&o.Port, "port", 0, "port of the starter's own Temporal server (default 7233, or a free port if taken)")
	flags.IntVar(&o.UIPort, "ui-port", 0, "port of its Web UI (default 8233, or a free port if taken)")
	flags.StringVar(&o.Listen, "listen", "",
		"TCP address of the gateway (default 127.0.0.1:7460, or a free port if taken)")
	gatewayflags.Security(starter, &o.Security)
	flags.BoolVar(&o.Fresh, "fresh", false, "delete the database of the starter's own Temporal server first")
	return starter
}
