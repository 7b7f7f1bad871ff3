package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/command"
)

func (a *app) sessionsBindingsCommand() *cobra.Command {
	var page pageFlags
	c := &cobra.Command{
		Use:   "bindings POOL",
		Short: "Show which sessions are bound to which workers",
		Long: `Show which sessions of a pool are bound to which workers, of all hosts. A call of a session prefers the worker that the session is bound to,
the one that served it last. If there are more than --limit bindings, the last line, or the field next, has the value of --after for the next page.`,
		Example: `  ctl sessions bindings python
  ctl sessions bindings python -o json | jq -r '.bindings[] | select(.worker == "python/2").session'`,
	}
	page.flags(c, "session", "bindings", api.MaxBindingsPage)
	return a.sessionCommand(c, func(ctx context.Context, p pool, _ []string) error {
		found, err := p.Bindings(ctx, page.after, page.limit)
		if err != nil {
			return err
		}
		return a.printResult(found, func(text *strings.Builder) {
			tableOf(text, []string{"SESSION", "WORKER"}, found.Bindings, func(b api.SessionBinding) []string { return []string{b.Session, b.Worker} })
			if found.Next != "" {
				fmt.Fprintf(text, "more bindings: --after %s\n", found.Next)
			}
		})
	})
}

func (a *app) sessionsBindCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bind POOL SESSION POOL/N",
		Short: "Bind a session to a worker",
		Long: `Bind a session to a worker, which serves the session's calls from then on if it is free. Unlike ctl sessions migrate it runs no hook: what a
process holds of the session stays there.`,
		Example: "  ctl sessions bind python user:42 python/3",
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 3 {
			return command.Usagef("%s takes POOL SESSION POOL/N", cmd.CommandPath())
		}
		if err := checkArguments([]string{argPool, argSession}, args[:2]); err != nil {
			return err
		}
		pool, _, err := workerName(args[2])
		if err == nil && pool != args[0] {
			err = command.Usagef("%s is not a worker of pool %s", args[2], args[0])
		}
		return err
	}
	return a.sessionCommand(c, func(ctx context.Context, p pool, args []string) error {
		_, slot, _ := workerName(args[2]) // c.Args has parsed it
		if err := p.Session(args[1]).Bind(ctx, slot); err != nil {
			return err
		}
		return a.printMessage(api.SessionBinding{Session: args[1], Worker: args[2]}, "bound session %s to %s", args[1], args[2])
	})
}

func (a *app) sessionsUnbindCommand() *cobra.Command {
	return a.sessionCommand(&cobra.Command{
		Use:     "unbind POOL SESSION",
		Short:   "End the binding of a session to a worker",
		Long:    "End the binding of a session to a worker. The next call of the session goes to any worker, and binds the session to it.",
		Example: "  ctl sessions unbind python user:42",
	}, func(ctx context.Context, p pool, args []string) error {
		if err := p.Session(args[1]).Unbind(ctx); err != nil {
			return err
		}
		return a.printMessage(api.SessionBinding{Session: args[1]}, "unbound session %s", args[1])
	})
}
