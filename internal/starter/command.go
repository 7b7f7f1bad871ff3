package starter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of the starter.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errInterrupted ends everything because somebody asked for it.
var errInterrupted = errors.New("interrupted")

// Main runs the starter until it is done, or TERM, INT or HUP end it in good order; a second one ends it at once. It returns the
// exit code.
func Main(args []string) int {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	defer watchSignals(stop, os.Stderr)()
	defer watchGoRun(stop)()
	command := newCommand(os.Stdout, Run)
	command.SetArgs(args)
	command.SetErr(os.Stderr)
	err := command.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "starter: %v\nRun 'starter --help' for what it takes.\n", err)
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "starter: %v\n", err)
	return exitFailed
}

// watchSignals calls stop at the first signal and exits at the second: what is left then dies with this process, since the
// processes of workers and the Temporal server are guarded. The function it returns ends the watch.
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
					fmt.Fprintln(out, "\nStopped at once.")
					os.Exit(exitFailed)
				}
				fmt.Fprintln(out, "\nStopping everything in good order; once more to stop at once.")
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

// newCommand is the starter's command; run does the work.
func newCommand(out io.Writer, run func(context.Context, Options) error) *cobra.Command {
	var o Options
	command := &cobra.Command{
		Use:   "starter",
		Short: "Show Tempool at work on this machine, with one command for everything",
		Long: `Show Tempool at work on this machine: the starter finds a running Temporal server or provides one, runs an agent, starts
the example pool of four Python processes, and has them measure the size and complexity of Python's whole standard library.
Then it leaves everything running, for you to look at and to break, until Ctrl-C.

Temporal is the one at --address; else the one that the standard settings (TEMPORAL_ADDRESS and the others, in the environment or
a profile) name, or that answers at localhost:7233; else a development server of the starter's own, whose database is kept in the
user's cache folder. --port, --ui-port and --fresh ask for a server of its own.

Exit codes: 0 done; 1 failed, with a sentence that says what to do; 2 the command line is wrong.`,
		Example: `  starter
  starter --once
  starter --address temporal.example.com:7233 --namespace demo
  starter --pool ./pool.toml`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("it takes no argument, but got %q", args[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			flags := command.Flags()
			if flags.Changed("listen") && o.Listen == "" {
				return usagef("--listen is empty; give HOST:PORT")
			}
			for _, name := range []string{"port", "ui-port"} {
				if port, _ := flags.GetInt(name); flags.Changed(name) && (port < 1 || port > 65535) {
					return usagef("--%s is %d; a port is a number from 1 to 65535", name, port)
				}
			}
			if flags.Changed("size") && (o.Size < 1 || o.Size > 1000) {
				return usagef("--size is %d; a pool has 1 to 1000 workers", o.Size)
			}
			if o.Address != "" && (o.Port != 0 || o.UIPort != 0 || o.Fresh) {
				return usagef("--address uses a server that runs already; --port, --ui-port and --fresh are for one of the starter's own")
			}
			if o.Port != 0 && o.Port == o.UIPort {
				return usagef("--port and --ui-port are both %d; they must differ", o.Port)
			}
			o.Out = out
			return run(command.Context(), o)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	command.SetOut(out)
	flags := command.Flags()
	flags.BoolVar(&o.Once, "once", false, "stop everything when the job is done")
	flags.StringVar(&o.Address, "address", "", "use the Temporal server at HOST:PORT")
	flags.StringVar(&o.Namespace, "namespace", "", `Temporal namespace (default: TEMPORAL_NAMESPACE, else "default")`)
	flags.StringVar(&o.PoolFile, "pool", "", "start the pool of this file instead of the example; the job runs only on a pool named codemetrics")
	flags.IntVar(&o.Size, "size", 0, "how many workers the pool has (default: what its file says)")
	flags.IntVar(&o.Port, "port", 0, "port of the starter's own Temporal server (default 7233, or a free one if that is taken)")
	flags.IntVar(&o.UIPort, "ui-port", 0, "port of its Web UI (default 8233, or a free one if that is taken)")
	flags.StringVar(&o.Listen, "listen", "", "TCP address of the gateway (default 127.0.0.1:7460, or a free port if that is taken)")
	flags.BoolVar(&o.Fresh, "fresh", false, "forget the database of the starter's own Temporal server and begin anew")
	return command
}
