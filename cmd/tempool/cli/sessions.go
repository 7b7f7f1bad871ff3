package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func (a *app) sessionsCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "sessions",
		Short: "List, read, delete, move, export and import the sessions of a pool",
		Example: `  tempool sessions list python
  tempool sessions get python user:42
  tempool sessions evacuate python/2`,
	}, a.sessionsListCommand(), a.sessionsGetCommand(), a.sessionsRemoveCommand(), a.sessionsBindingsCommand(),
		a.sessionsExportCommand(), a.sessionsImportCommand(), a.sessionsCopyCommand(), a.sessionsMigrateCommand(),
		a.sessionsEvacuateCommand(), a.sessionsRebalanceCommand())
}

// sessionCommand makes c run with the pool that its first argument names, for at most limit, or --timeout if that is 0.
func (a *app) sessionCommand(c *cobra.Command, limit time.Duration,
	run func(ctx context.Context, p *tempool.Pool, args []string) error) *cobra.Command {
	return a.gatewayCommand(c, func(ctx context.Context, p *tempool.Pool, args []string) error {
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(limit, a.timeout))
		defer cancel()
		return run(ctx, p, args)
	})
}

// pageFlags chooses one page of a list.
type pageFlags struct {
	after string
	limit int
}

// flags adds the flags of a list of things, each named after what identifies it, such as "session".
func (p *pageFlags) flags(c *cobra.Command, key, things string, most int) {
	c.Flags().StringVar(&p.after, "after", "", "start after this "+key)
	rangeVar(c, &p.limit, "limit", 100, 1, most, fmt.Sprintf("maximum number of %s, 1 to %d", things, most))
}

func (a *app) sessionsListCommand() *cobra.Command {
	var page pageFlags
	c := withNames(&cobra.Command{
		Use:   "list POOL",
		Short: "List the sessions in a pool's store",
		Long: `List the sessions in a pool's store, ordered by id. Pools of one host with the same sessions.store
and sessions.url share a store. If there are more than --limit sessions, the last line, or the field next, has the
value of --after for the next page.`,
		Example: `  tempool sessions list python
  tempool sessions list python --limit 1000 -o json | jq -r '.sessions[].id'`,
	})
	page.flags(c, "id", "sessions", 1000)
	return a.sessionCommand(c, 0, func(ctx context.Context, p *tempool.Pool, _ []string) error {
		found, err := p.Sessions(ctx, page.after, page.limit)
		if err != nil {
			return err
		}
		return a.printResult(found, func(text *strings.Builder) {
			tableOf(text, []string{"SESSION", "VERSION", "SIZE", "IDLE", "TTL"}, found.Sessions,
				func(s tempool.SessionSummary) []string {
					return []string{s.ID, strconv.FormatInt(s.Version, 10), formatBytes(int64(s.Bytes)),
						formatDuration(a.now().Sub(s.LastAccessed)), s.TTL.String()}
				})
			if found.Next != "" {
				fmt.Fprintf(text, "more sessions: --after %s\n", found.Next)
			}
		})
	})
}

func (a *app) sessionsGetCommand() *cobra.Command {
	return a.sessionCommand(&cobra.Command{
		Use:   "get POOL SESSION",
		Short: "Show the data of a session",
		Long:  "Show the data, programs and metadata of a session. This renews its TTL.",
		Example: `  tempool sessions get python user:42
  tempool sessions get python user:42 -o json | jq .data`,
	}, 0, func(ctx context.Context, p *tempool.Pool, args []string) error {
		state, err := p.Session(args[1]).Get(ctx)
		if err != nil {
			return err
		}
		return a.printResult(state, func(text *strings.Builder) {
			fmt.Fprintf(text, "%s, version %d, expires %s after its last use\n", state.ID, state.Version, state.TTL)
			var rows [][]string
			for _, part := range []struct {
				name   string
				values map[string]json.RawMessage
			}{{"data", state.Data}, {"programs", state.Programs}, {"metadata", state.Metadata}} {
				for _, key := range slices.Sorted(maps.Keys(part.values)) {
					rows = append(rows, []string{part.name, key, oneLine(string(part.values[key]), maxReasonRunes)})
				}
			}
			if len(rows) > 0 {
				table(text, []string{"PART", "KEY", "VALUE"}, rows)
			}
		})
	})
}

func (a *app) sessionsRemoveCommand() *cobra.Command {
	return a.sessionCommand(&cobra.Command{
		Use:     "rm POOL SESSION",
		Short:   "Delete a session",
		Example: "  tempool sessions rm python user:42",
	}, 0, func(ctx context.Context, p *tempool.Pool, args []string) error {
		if err := p.Session(args[1]).Delete(ctx); err != nil {
			return err
		}
		return a.printMessage(map[string]string{"deleted": args[1]}, "deleted session %s", args[1])
	})
}

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
