package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/cmd/tempool/dev"
)

const maxPort = 65535

func (a *app) devCommand() *cobra.Command {
	var o dev.Options
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a Temporal server, an agent, and an example or a pool of yours",
		Long: `Run Tempool on this machine: find or start a Temporal server, start an agent and the example pool of
four Python processes, and measure the size and complexity of Python's standard library on them. Then everything keeps
running until Ctrl-C. With -f your own pool runs instead.

The Temporal server is the one at --address; else the one in the standard settings (TEMPORAL_ADDRESS and others, in the
environment or a profile); else the one at localhost:7233; else a development server of its own, with its database in
the user's cache folder. With --port or --ui-port it is always its own.`,
		Example: `  tempool dev
  tempool dev --once
  tempool dev --address temporal.example.com:7233 --namespace demo
  tempool dev -f pool.toml`,
	}
	flags := c.Flags()
	flags.BoolVar(&o.Once, "once", false, "exit when the job is done")
	flags.StringVarP(&o.PoolFile, "file", "f", "",
		"pool file to start instead of the example; the job runs only on a pool named codemetrics")
	mustDefine(c, c.MarkFlagFilename("file", "toml"))
	rangeVar(c, &o.Port, "port", 0, 1, maxPort, "port of its own Temporal server (default 7233, or a free port if taken)")
	rangeVar(c, &o.UIPort, "ui-port", 0, 1, maxPort, "port of its Web UI (default 8233, or a free port if taken)")
	flags.StringVar(&o.Listen, "listen", "",
		"TCP address of the gateway (default 127.0.0.1:7460, or a free port if taken)")
	securityFlags(c, &o.Security)
	checkFlags(c, func(c *cobra.Command) error {
		if c.Flags().Changed("listen") && o.Listen == "" {
			return usagef("--listen is empty; use HOST:PORT")
		}
		if a.options.Address != "" && (o.Port != 0 || o.UIPort != 0) {
			return usagef("--address uses a running server; --port and --ui-port apply to a server of its own")
		}
		if o.Port != 0 && o.Port == o.UIPort {
			return usagef("--port and --ui-port are both %d; they must differ", o.Port)
		}
		return nil
	})
	return a.daemonCommand(c, settingsOf(c), func(ctx context.Context) error {
		ctx, stop := dev.UntilStopped(ctx, a.err)
		defer stop()
		o.Address, o.Namespace, o.Payloads, o.Out = a.options.Address, a.options.Namespace, a.options.Payloads, a.out
		return a.runDev(ctx, o)
	})
}
