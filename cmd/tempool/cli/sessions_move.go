package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func (a *app) sessionsMigrateCommand() *cobra.Command {
	var to string
	c := a.moveCommand(&cobra.Command{
		Use:   "migrate POOL SESSION --to POOL/N",
		Short: "Move a session to another worker",
		Long: `Move a session to another worker: its current worker saves what it holds of the session to the store
(session.release), the session's calls go to the other worker from then on, and that worker loads the session
(session.load). If a step fails, the session stays with its current worker.`,
		Example: `  tempool sessions migrate python user:42 --to python/3
  tempool sessions migrate python user:42 --to python/3 --no-wait`,
	}, func(ctx context.Context, cp controlPlane, args []string) (*tempool.Migration, error) {
		return cp.Pool(args[0]).Session(args[1]).Migrate(ctx, api.MigrateSessionRequest{To: to})
	})
	c.Flags().StringVar(&to, "to", "", "worker that gets the session, POOL/N")
	required(c, "to")
	checkFlags(c, func(cmd *cobra.Command) error {
		pool, _, err := workerName(to)
		switch {
		case !cmd.Flags().Changed("to"), cmd.Flags().NArg() == 0: // which is said later
			return nil
		case err == nil && pool != cmd.Flags().Arg(0):
			return usagef("--to is %s, which is not a worker of pool %s", to, cmd.Flags().Arg(0))
		}
		return err
	})
	return c
}

func (a *app) sessionsEvacuateCommand() *cobra.Command {
	var excludeFor time.Duration
	var reason string
	c := a.moveCommand(&cobra.Command{
		Use:   "evacuate POOL/N",
		Short: "Move all sessions of a worker to the others of its pool",
		Long: `Move all sessions of a worker evenly to the other workers of its pool, each as tempool sessions migrate
does, while calls continue. The worker keeps serving calls but gets no new sessions for --exclude-for, or until its
process ends. If sessions could not be moved, they stay with the worker and the command fails.`,
		Example: `  tempool sessions evacuate python/2
  tempool sessions evacuate python/2 --exclude-for 1h --reason "new disk"`,
	}, func(ctx context.Context, cp controlPlane, args []string) (*tempool.Migration, error) {
		pool, slot, _ := workerName(args[0]) // checkArguments has parsed it
		return cp.Pool(pool).Evacuate(ctx, api.EvacuateRequest{
			Worker: slot, ExcludeFor: new(spec.Duration(excludeFor)), Reason: reason, By: operator(),
		})
	})
	c.Flags().DurationVar(&excludeFor, "exclude-for", api.DefaultSessionExclusion,
		"how long the worker gets no new sessions afterwards")
	c.Flags().StringVar(&reason, "reason", "", "reason to record in the workflow")
	checkFlags(c, func(*cobra.Command) error {
		if excludeFor < 0 || excludeFor > api.MaxSessionExclusion {
			return usagef("--exclude-for is %s; give a duration from 0 to %s", excludeFor, api.MaxSessionExclusion)
		}
		return nil
	})
	return c
}

func (a *app) sessionsRebalanceCommand() *cobra.Command {
	var parts map[string]int
	var weights map[int]int // of parts
	c := a.moveCommand(&cobra.Command{
		Use:   "rebalance POOL",
		Short: "Distribute a pool's sessions over its workers",
		Long: `Distribute a pool's sessions over its workers, evenly or by --weight. As few sessions as possible move,
each as tempool sessions migrate does. With --weight, sessions move only between the named workers; a worker of weight
0 keeps none.`,
		Example: `  tempool sessions rebalance python
  tempool sessions rebalance python --weight 0=2,1=1,2=1`,
	}, func(ctx context.Context, cp controlPlane, args []string) (*tempool.Migration, error) {
		return cp.Pool(args[0]).RebalanceSessions(ctx, api.RebalanceSessionsRequest{Weights: weights})
	})
	c.Flags().StringToIntVar(&parts, "weight", nil, "weight of each worker relative to the others, N=WEIGHT,...")
	checkFlags(c, func(*cobra.Command) (err error) {
		weights, err = parseWeights(parts)
		return err
	})
	return c
}

// parseWeights parses the slots of --weight.
func parseWeights(parts map[string]int) (map[int]int, error) {
	weights := map[int]int{}
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		slot, err := strconv.Atoi(part)
		if err != nil || slot < 0 || parts[part] < 0 {
			return nil, usagef("--weight %s=%d is not a worker number and a weight, such as 0=2", part, parts[part])
		}
		weights[slot] = parts[part]
	}
	return weights, nil
}

// moveCommand makes c start a migration and, without --no-wait, wait for it. It fails if not all sessions have moved.
func (a *app) moveCommand(c *cobra.Command,
	start func(ctx context.Context, cp controlPlane, args []string) (*tempool.Migration, error)) *cobra.Command {
	var wait waitFlags
	wait.flags(c, defaultRolloutWait, "until the sessions have moved")
	return a.controlPlaneCommand(c, func(ctx context.Context, cp controlPlane, args []string) error {
		request, cancel := a.request(ctx)
		defer cancel()
		started, err := start(request, cp, args)
		if err != nil {
			return err
		}
		if wait.skip {
			return a.printMessage(map[string]string{"workflow_id": started.WorkflowID()}, "started workflow %s",
				started.WorkflowID())
		}
		moves, err := a.awaitMigration(ctx, started, wait.limit)
		if err != nil {
			return err
		}
		if err := a.printResult(moves, func(text *strings.Builder) { writeMoves(text, moves) }); err != nil ||
			moves.Skipped == 0 {
			return err
		}
		return api.Errorf(moves.Skips[0].Code, "%s could not be moved; the first: %s", plural(moves.Skipped, "session"),
			moves.Skips[0].Reason)
	})
}

// awaitMigration waits for a migration and shows its progress.
func (a *app) awaitMigration(ctx context.Context, m *tempool.Migration,
	limit time.Duration) (done api.SessionMoves, err error) {
	wait := func(ctx context.Context) (err error) {
		done, err = m.Wait(ctx)
		return err
	}
	err = a.awaitEnd(ctx, limit, wait, func(ctx context.Context) {
		progress, err := send(ctx, a, m.Progress)
		if err == nil && progress.Total > 0 {
			a.showProgress(fmt.Sprintf("%d of %s moved", progress.Moved, plural(progress.Total, "session")))
		}
	}, func() string {
		return fmt.Sprintf("not done after %s; workflow %s continues", formatDuration(limit), m.WorkflowID())
	})
	return done, err
}

func writeMoves(text *strings.Builder, moves api.SessionMoves) {
	fmt.Fprintf(text, "%s moved", plural(moves.Moved, "session"))
	if moves.Skipped > 0 {
		fmt.Fprintf(text, ", %d not", moves.Skipped)
	}
	if moves.Note != "" {
		fmt.Fprintf(text, ": %s", moves.Note)
	}
	fmt.Fprintln(text)
	if len(moves.Flows) > 0 {
		tableOf(text, []string{"FROM", "TO", "SESSIONS"}, moves.Flows,
			func(f api.SessionFlow) []string { return []string{orDash(f.From), f.To, strconv.Itoa(f.Count)} })
	}
	if len(moves.Skips) > 0 {
		tableOf(text, []string{"NOT MOVED", "FROM", "TO", "REASON"}, moves.Skips, func(s api.SessionSkip) []string {
			reason := s.Reason
			if s.NotUndone != "" {
				reason += "; not undone: " + s.NotUndone
			}
			return []string{s.Session, s.From, s.To, oneLine(reason, maxReasonRunes)}
		})
	}
}
