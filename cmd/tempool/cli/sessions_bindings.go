package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func (a *app) sessionsBindingsCommand() *cobra.Command {
	var page pageFlags
	c := &cobra.Command{
		Use:   "bindings POOL",
		Short: "Show which sessions are bound to which workers",
		Long: `Show which sessions of a pool are bound to which workers, of all hosts. A call of a session prefers the
worker that the session is bound to, the one that served it last. If there are more than --limit bindings, the last
line, or the field next, has the value of --after for the next page.`,
		Example: `  tempool sessions bindings python
  tempool sessions bindings python -o json | jq -r '.bindings[].session'`,
	}
	page.flags(c, "session", "bindings", api.MaxBindingsPage)
	return a.sessionCommand(c, 0, func(ctx context.Context, p *tempool.Pool, _ []string) error {
		found, err := p.Bindings(ctx, page.after, page.limit)
		if err != nil {
			return err
		}
		return a.printResult(found, func(text *strings.Builder) {
			tableOf(text, []string{"SESSION", "WORKER"}, found.Bindings,
				func(b api.SessionBinding) []string { return []string{b.Session, b.Worker} })
			if found.Next != "" {
				fmt.Fprintf(text, "more bindings: --after %s\n", found.Next)
			}
		})
	})
}
